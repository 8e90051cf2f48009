#!/usr/bin/env bash
# pydantic 2.14.3: a rollout whose steps are models, through JSON and copied
#
# Guess: what was valid comes back equal, or an error says what was lost; a copy is a copy.
# Behaviour: of a step that is of a subclass only the fields of the declared class are written. Of a union the class with most
# of the fields is taken, and of equal ones the first, whose other fields are dropped: with `exclude_defaults` a `Reply` comes
# back as a `Call`. A reward of NaN is null, and cannot be read. `model_copy` shares lists, and models within a model are shared
# with who gave them, while lists are not.
. "$(dirname "$0")/common.sh"
packages pydantic==2.14.3

cat >reload.py <<'PYTHON'
import warnings
from pydantic import BaseModel, ValidationError
warnings.simplefilter("ignore")
class Step(BaseModel):
    tool: str = ""
class Call(Step):
    arguments: str = ""
class Reply(Step):
    text: str = ""
class Rollout(BaseModel):
    steps: list[Step] = []
    last: Call | Reply = Call()
    reward: float = 0
call = Call(tool="bash", arguments="ls")
rollout = Rollout(steps=[call], last=Reply(tool="bash"))
print(rollout.model_dump_json(include={"steps"}))
print(type(Rollout.model_validate_json(rollout.model_dump_json(exclude_defaults=True)).last).__name__)
print(repr(Rollout.model_validate_json('{"last": {"arguments": "ls", "text": "done"}}').last))
try:
    print(Rollout.model_validate_json(Rollout(reward=float("nan")).model_dump_json()))
except ValidationError as error:
    print(error.errors()[0]["type"])
given = [call]
other = Rollout(steps=given)
print(rollout.model_copy().steps is rollout.steps, other.steps is given, other.steps[0] is call)
PYTHON
python reload.py >out
seen "a step with arguments" "$(sed -n 1p out)" '{"steps":[{"tool":"bash"}]}'
seen "the class of a Reply that was written with exclude_defaults" "$(sed -n 2p out)" "Call"
seen "a last step with arguments and text" "$(sed -n 3p out)" "Call(tool='', arguments='ls')"
seen "a reward of NaN" "$(sed -n 4p out)" "float_type"
seen "shared: the list of a copy, the list given, the step in it" "$(sed -n 5p out)" "True False True"
