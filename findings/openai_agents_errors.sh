#!/usr/bin/env bash
# openai-agents 0.24.0: a tool of `function_tool` that raises an error, and calls that do not fit its schema
#
# Guess: the model is told the error; a call with an argument that the schema forbids, or without one that it requires,
# is refused.
# Behaviour: each error is the same sentence, without the error's text, also for arguments that are no JSON: a policy cannot
# learn from it what was wrong. An invented argument is dropped, a missing one has the default, and "7" and true are numbers.
. "$(dirname "$0")/common.sh"
packages openai-agents==0.24.0

cat >call.py <<'PYTHON'
import asyncio, json
from agents import function_tool
from agents.tool_context import ToolContext
@function_tool
def read(path: str, lines: int = 5) -> str:
    """Reads a file."""
    if path == "missing":
        raise FileNotFoundError("there is no file 'missing', but 'present'")
    return f"{lines} lines of {path}"
async def call(arguments):
    context = ToolContext(context=None, tool_name="read", tool_call_id="1", tool_arguments=arguments)
    return await read.on_invoke_tool(context, arguments)
schema = read.params_json_schema
print(schema["required"], schema["additionalProperties"])
print(asyncio.run(call('{"path": "missing", "lines": 1}')))
print(asyncio.run(call('{"path": "missing", "lines"')))
print(asyncio.run(call('{"path": "a", "until": 9}')))
print(asyncio.run(call('{"path": "a", "lines": "7"}')), "|", asyncio.run(call('{"path": "a", "lines": true}')))
PYTHON
OPENAI_AGENTS_DISABLE_TRACING=1 python call.py 2>errors >out || { cat errors >&2; exit 2; }
same="An error occurred while running the tool. Please try again."
seen "required, others allowed" "$(sed -n 1p out)" "['path', 'lines'] False"
seen "an error of the tool" "$(sed -n 2p out)" "$same"
seen "arguments that end too early" "$(sed -n 3p out)" "$same"
seen "one missing, one invented" "$(sed -n 4p out)" "5 lines of a"
seen '"7" and true as numbers' "$(sed -n 5p out)" "7 lines of a | 1 lines of a"
