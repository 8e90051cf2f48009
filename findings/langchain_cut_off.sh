#!/usr/bin/env bash
# langchain-core 1.8.1: a tool call or an answer in JSON that the token limit cut off
#
# Guess: it is an error, or an invalid tool call, so that nothing is executed and no reward is given.
# Behaviour: it is completed: of a stream that ends within `{"path": "/tmp/a", "lines": 12` the message has a valid call with
# 12, and of `{"path": "/tm` one for "/tm"; `JsonOutputParser` gives lists and texts as far as they came. A whole message with
# the same arguments is an error. Pieces whose `index` is None are not joined: the call has the arguments of the first.
. "$(dirname "$0")/common.sh"
packages langchain-core==1.8.1

cat >parse.py <<'PYTHON'
from langchain_core.messages import AIMessageChunk, convert_to_messages
from langchain_core.output_parsers import JsonOutputParser
def streamed(index, *pieces):
    message = AIMessageChunk("")
    for number, piece in enumerate(pieces):
        name, call = ("head", "1") if number == 0 else (None, None)
        message += AIMessageChunk("", tool_call_chunks=[{"name": name, "args": piece, "id": call, "index": index}])
    return *(call["args"] for call in message.tool_calls), len(message.invalid_tool_calls)
print(*streamed(0, '{"path": "/tmp/a", ', '"lines": 12'))
print(*streamed(0, '{"path": "/tm'))
print(*streamed(None, '{"path": "/tmp/a", ', '"lines": 120}'))
for text in ('{"files": ["a", "b', '{"answer": 12.'):
    print(JsonOutputParser().parse(text))
call = {"id": "1", "type": "function", "function": {"name": "head", "arguments": '{"path": "/tm'}}
try:
    print(convert_to_messages([{"role": "assistant", "content": "", "tool_calls": [call]}]))
except ValueError as error:
    print(type(error).__name__)
PYTHON
python parse.py 2>errors >out || { cat errors >&2; exit 2; }
seen "cut within a number: arguments, invalid calls" "$(sed -n 1p out)" "{'path': '/tmp/a', 'lines': 12} 0"
seen "cut within a path" "$(sed -n 2p out)" "{'path': '/tm'} 0"
seen "whole, in two pieces without an index" "$(sed -n 3p out)" "{'path': '/tmp/a'} 1"
seen "answers in JSON, cut" "$(sed -n 4,5p out | paste -sd' ')" "{'files': ['a', 'b']} {'answer': 12}"
seen "a whole message with cut arguments" "$(sed -n 6p out)" "JSONDecodeError"
