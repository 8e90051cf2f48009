#!/usr/bin/env bash
# mcp 2.3.0, the SDK in Python: a tool whose argument is an optional text, `content: str | None`, as one that writes files
#
# Guess: a text is a text, whatever it says; for `content: str` it is so.
# Behaviour: for each other type the server reads texts as JSON first. The text `null` is None, and with the type
# `str | dict` or `Any` a text that is an object is a dict; for `str | None` it is refused, as it is no text any more. The
# schema that the model is given says that texts are fine. `1`, `true` and `"a"` stay texts.
. "$(dirname "$0")/common.sh"
packages mcp==2.3.0

cat >tools.py <<'PYTHON'
import asyncio, logging, typing
from mcp.server import MCPServer
logging.disable()
server = MCPServer("probe")
@server.tool()
def plain(content: str) -> str:
    return repr(content)
@server.tool()
def optional(content: str | None = None) -> str:
    return repr(content)
@server.tool()
def either(content: str | dict) -> str:
    return repr(content)
@server.tool()
def anything(content: typing.Any) -> str:
    return repr(content)
async def main():
    for text in ("null", '{"a": 1}', "[1]", "1"):
        shown = []
        for tool in ("plain", "optional", "either", "anything"):
            try:
                shown.append((await server.call_tool(tool, {"content": text})).content[0].text)
            except Exception:
                shown.append("error")
        print(*shown, sep=", ")
asyncio.run(main())
PYTHON
python tools.py >out 2>errors || { cat errors >&2; exit 2; }
seen "null, for str, str | None, str | dict, Any" "$(sed -n 1p out)" "'null', None, error, None"
seen 'the text {"a": 1}' "$(sed -n 2p out)" "'{\"a\": 1}', error, {'a': 1}, {'a': 1}"
seen "the text [1]" "$(sed -n 3p out)" "'[1]', error, error, [1]"
seen "the text 1" "$(sed -n 4p out)" "'1', '1', '1', '1'"
