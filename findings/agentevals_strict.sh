#!/usr/bin/env bash
# agentevals 0.0.9: a trajectory that is compared with a reference, by the modes `strict` and `subset`
#
# Guess: `strict` wants the same messages and calls; `subset` wants some of its calls, at least one.
# Behaviour: `strict` compares the roles and the calls alone. What the agent answers, what tools returned and what was asked may be anything:
# "I did not pay" is as good as "Paid", and so is a tool that returned an error. An argument true is 1. For `subset`, a trajectory
# without any call is right, also an empty one.
. "$(dirname "$0")/common.sh"
packages agentevals==0.0.9

cat >match.py <<'PYTHON'
import json
from agentevals.trajectory.match import create_trajectory_match_evaluator
def call(name, **arguments):
    return {"role": "assistant", "content": "", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}]}
def dialogue(*calls, asked="Pay 1.", returned="ok", answer="Paid"):
    result = {"role": "tool", "tool_call_id": "1", "content": returned}
    steps = [part for each in calls for part in (each, result)]
    return [{"role": "user", "content": asked}, *steps, {"role": "assistant", "content": answer}]
reference = dialogue(call("pay", amount=1))
def match(mode, given):
    return create_trajectory_match_evaluator(trajectory_match_mode=mode)(outputs=given, reference_outputs=reference)["score"]
pay = call("pay", amount=1)
print(*(match("strict", given) for given in (
    dialogue(pay, answer="I did not pay"), dialogue(pay, returned="error"), dialogue(pay, asked="Hello"),
    dialogue(call("pay", amount=True)))))
print(match("strict", dialogue(pay, pay)), match("strict", dialogue(call("pay", amount=2))))
print(match("subset", dialogue()), match("subset", []))
PYTHON
python match.py >out 2>errors || { cat errors >&2; exit 2; }
seen "strict: another answer, an error of the tool, another question, true for 1" "$(sed -n 1p out)" "True True True True"
seen "strict: paid twice, another amount" "$(sed -n 2p out)" "False False"
seen "subset: no call, and nothing at all" "$(sed -n 3p out)" "True True"
