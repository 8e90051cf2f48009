#!/usr/bin/env bash
# json_repair 0.64.6: the tool calls in what a policy has written, one below the other
#
# Guess: all of them, as a list, or the first; for numbers that are none, the text.
# Behaviour: of neighbours with the same keys only the last is there: a read before a write is dropped. With other keys, or with
# a comma between them, it is a list. 12:30 is the number 12, 10% the number 10, but 1/2 is a text.
. "$(dirname "$0")/common.sh"
packages json_repair==0.64.6

cat >calls.py <<'PYTHON'
import json_repair
read, write, stop = ('{"name": "read", "path": "a"}', '{"name": "write", "path": "b"}', '{"name": "stop"}')
def names(text):
    calls = json_repair.loads(text)
    return [call["name"] for call in calls] if isinstance(calls, list) else calls["name"]
print(names(f"{read}\n{write}"), names(f"<tool_call>{read}</tool_call>\n<tool_call>{write}</tool_call>"), names(f"{read}\n{stop}"), names(f"{read},\n{write}"))
print(json_repair.loads('{"at": 12:30, "share": 10%, "half": 1/2}'))
PYTHON
python calls.py >out
seen "read and write, both in tags, read and stop, read and write with a comma" "$(sed -n 1p out)" \
    "write write ['read', 'stop'] ['read', 'write']"
seen "12:30, 10%, 1/2" "$(sed -n 2p out)" "{'at': 12, 'share': 10, 'half': '1/2'}"
