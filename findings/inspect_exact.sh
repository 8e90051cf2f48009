#!/usr/bin/env bash
# Inspect (inspect_ai 0.3.285): which answers its scorers `exact` and `match` hold for right
#
# Guess: `exact` compares texts; `match` wants the target as a word at the end.
# Behaviour: `exact` drops case, punctuation and articles, a minus, too: -42 is 42, and "a cat" is "The cat!". `match`
# compares the last characters, so that 142 and -42 are right for 42; with numeric=True they are wrong.
. "$(dirname "$0")/common.sh"
packages inspect-ai==0.3.285

cat >score.py <<'END'
import asyncio
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Target, exact, match
from inspect_ai.solver import TaskState
async def main():
    for scorer, output, target in (
        (exact(), "-42", "42"), (exact(), "The cat!", "a cat"), (match(), "-42", "42"), (match(), "142", "42"),
        (match(numeric=True), "-42", "42"), (match(numeric=True), "142", "42"),
    ):
        answer = ModelOutput.from_content("none", output)
        state = TaskState(model="none/none", sample_id=1, epoch=1, input="", messages=[], output=answer)
        print((await scorer(state, Target(target))).value)
asyncio.run(main())
END
python score.py 2>errors >out || { cat errors >&2; exit 2; }
seen "exact: -42 for 42, The cat! for a cat" "$(sed -n '1,2p' out | xargs)" "C C"
seen "match: -42 and 142 for 42" "$(sed -n '3,4p' out | xargs)" "C C"
seen "match(numeric=True): -42 and 142 for 42" "$(sed -n '5,6p' out | xargs)" "I I"
