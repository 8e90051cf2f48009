#!/usr/bin/env bash
# mcp 2.3.0: what a tool of `MCPServer` returns, as the model sees it
#
# Guess: a list is JSON, as a dict is; nothing is null, and an empty list [].
# Behaviour: each part of a list is a text of its own, those of inner lists too, so that [[1, 2], [3]] is 1, 2, 3; parts that are None are
# missing. None and an empty list have no content at all, an empty text has one. A set is JSON. The structured content, which is there if the
# tool says what it returns, has the list as it is; 5.0 for `int` is 5 there, and the text 5.0.
. "$(dirname "$0")/common.sh"
packages mcp==2.3.0

cat >results.py <<'PYTHON'
import asyncio
from mcp.server import MCPServer
server = MCPServer("probe")
values = {"dict": {"a": 1}, "nested": [[1, 2], [3]], "missing": [None, 1], "none": None, "empty": [], "text": "", "set": {1}}
def returns(value):
    def tool():
        return value
    return tool
for name, value in values.items():
    server.tool(name=name)(returns(value))
@server.tool()
def whole() -> int:
    return 5.0
@server.tool()
def lists() -> list[list[int]]:
    return [[1, 2], [3]]
async def main():
    for name in (*values, "whole", "lists"):
        result = await server.call_tool(name, {})
        print([" ".join(part.text.split()) for part in result.content], result.structured_content)
asyncio.run(main())
PYTHON
python results.py >out 2>errors || { cat errors >&2; exit 2; }
seen "a dict" "$(sed -n 1p out)" "['{ \"a\": 1 }'] None"
seen "[[1, 2], [3]]" "$(sed -n 2p out)" "['1', '2', '3'] None"
seen "[None, 1]" "$(sed -n 3p out)" "['1'] None"
seen "None" "$(sed -n 4p out)" "[] None"
seen "an empty list" "$(sed -n 5p out)" "[] None"
seen "an empty text" "$(sed -n 6p out)" "[''] None"
seen "a set of 1" "$(sed -n 7p out)" "['[ 1 ]'] None"
seen "5.0, for int" "$(sed -n 8p out)" "['5.0'] {'result': 5}"
seen "[[1, 2], [3]], for list[list[int]]" "$(sed -n 9p out)" "['1', '2', '3'] {'result': [[1, 2], [3]]}"
