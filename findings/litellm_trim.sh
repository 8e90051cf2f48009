#!/usr/bin/env bash
# litellm 1.110.2: `trim_messages`, which makes the dialogue of an agent with tools fit into a number of tokens
#
# Guess: the task stays, calls and their results go together, and the result is not longer than it may be.
# Behaviour: what is nearest to the end stays, and the message before it is cut in the middle: the result of a tool is there without
# its call, and the task is gone. Where the cut would fall into a call without text, all comes back as it was, twice as long
# as it may be, and an error is logged. Results of tools at the end are not counted, and stay.
. "$(dirname "$0")/common.sh"
packages litellm==1.110.2

cat >trim.py <<'PYTHON'
import json
import litellm
def dialogue(path, result, *rest):
    call = {"id": "1", "type": "function", "function": {"name": "read", "arguments": json.dumps({"path": path})}}
    return [
        {"role": "system", "content": "Use tools."}, {"role": "user", "content": "Mend the test."},
        {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "1", "content": result}, *rest,
    ]
def shown(messages):
    trimmed = litellm.utils.trim_messages(messages, model="gpt-4o", max_tokens=100)
    count = litellm.token_counter(model="gpt-4o", messages=trimmed)
    print(*(message["role"] for message in trimmed), "fits" if count <= 100 else "twice as long" if count > 200 else "too long")
    return trimmed
rest = {"role": "assistant", "content": "It is line 3."}, {"role": "user", "content": "Go on."}
messages = shown(dialogue("a", "word " * 300, *rest))
print(".." in messages[1]["content"])
shown(dialogue("word " * 300, "one line", *rest))
shown(dialogue("a", "word " * 300))
PYTHON
LITELLM_LOCAL_MODEL_COST_MAP=True python trim.py 2>log >out
seen "a long result of a tool" "$(sed -n 1p out)" "system tool assistant user fits"
seen "it is cut in the middle" "$(sed -n 2p out)" "True"
seen "a long call" "$(sed -n 3p out)" "system user assistant tool assistant user twice as long"
seen "the error in the log" "$(grep -c '^TypeError' log)" 1
seen "a long result at the end" "$(sed -n 4p out)" "system user assistant tool twice as long"
