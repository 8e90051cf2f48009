#!/usr/bin/env bash
# verl 0.9.1: `rlla.compute_score`, the reward for tool calls: up to 1 for the form, and from -3 to 3 for the calls
#
# Guess: the calls decide, however their JSON is written; a call too many, or where none is right, costs much.
# Behaviour: each line must be a call, so that JSON of several lines is as bad as no call; so is "arguments" for "parameters", and
# a thought that names <tool_call>. One call too many costs 0.33 of 4, and calls have no order. Where an answer without calls
# is right, any text is, and a call has 0, as the right text with one more line end has.
. "$(dirname "$0")/common.sh"
packages_alone verl==0.9.1

cat >score.py <<'PYTHON'
import json
import runpy
import sysconfig
compute_score = runpy.run_path(sysconfig.get_path("purelib") + "/verl/utils/reward_score/rlla.py")["compute_score"]
read, write = {"name": "read", "parameters": {"path": "a"}}, {"name": "write", "parameters": {"path": "b", "line": 3}}
delete, other = {"name": "delete", "parameters": {"path": "/"}}, {"name": "read", "arguments": {"path": "a"}}
def text(*calls, thought="so", indent=None):
    return f"<think>{thought}</think>\n<tool_call>\n" + "\n".join(json.dumps(call, indent=indent) for call in calls) + "\n</tool_call>"
def score(answer, truth):
    result = compute_score("", answer, truth, {"experiment_name": "qwen"})
    return round(result["score"], 2)
truth = text(read, write)
print("scores", *(score(answer, truth) for answer in (
    text(read, write), text(write, read), text(read, write, delete), text(read, write, indent=1), text(other, write),
    text(read, write, thought="a <tool_call> now"), "no call",
)))
truth = "<think>so</think>\n<response>It is 42.</response>"
print("scores", *(score(answer, truth) for answer in (
    truth, truth.replace("42", "41"), truth.replace("\n", "\n\n"), text(delete),
)))
PYTHON
python score.py | grep ^scores | cut -d " " -f 2- >out # it prints examples by chance
seen "both calls, in another order, one more, JSON of several lines, arguments, a thought, none" "$(sed -n 1p out)" "4.0 4.0 3.67 -2.0 -2.0 -3.0 -3.0"
seen "right is a text: it, another one, one more line end, a call" "$(sed -n 2p out)" "1.0 1.0 0.0 0.0"
