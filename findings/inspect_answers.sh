#!/usr/bin/env bash
# inspect-ai 0.3.285: the scorers `answer` and `match(numeric=True)`, and scores that are texts
#
# Guess: the letter counts, however it is marked; a number counts, however it is written; "correct" is more than 0.
# Behaviour: `answer("letter")` finds no letter in "ANSWER: **B**", "**ANSWER:** B" and "ANSWER: (B)", but in "ANSWER: a cat".
# `match` finds no number in 5%, 10/2, x=5 and \boxed{5}, but in a Chinese word. In means, "C" and "yes" are 1; "correct", "c" and
# 50% are 0, with a warning.
. "$(dirname "$0")/common.sh"
packages inspect-ai==0.3.285
export HOME=$work

cat >score.py <<'PYTHON'
import asyncio
from inspect_ai.model import ModelName, ModelOutput
from inspect_ai.scorer import Score, Target, answer, match, mean_score
from inspect_ai.solver import TaskState
def grades(scorer, *pairs):
    marks = []
    for text, target in pairs:
        state = TaskState(ModelName("mockllm/model"), 1, 1, "", [], output=ModelOutput.from_content("mockllm", text))
        marks.append(asyncio.run(scorer(state, Target(target))).value)
    print("".join(marks))
grades(answer("letter"), *((text, "B") for text in ("ANSWER: B", "ANSWER: **B**", "**ANSWER:** B", "ANSWER: (B)")), ("ANSWER: a cat", "A"))
grades(match(numeric=True), *((text, "5") for text in ("x = 5", "x=5", "\\boxed{5}", "5%", "10/2", "\u4e94")))
for text in ("C", "yes", "correct", "c", "50%"):
    print(mean_score()([Score(value=text)]).value, end=" ")
PYTHON
python score.py >out 2>log || { tail -n 3 log; exit 1; }
seen "answer: B, **B**, **ANSWER:** B, (B); a cat for A" "$(sed -n 1p out)" "CIIIC"
seen "match: x = 5, x=5, \\boxed{5}, 5%, 10/2, the Chinese word" "$(sed -n 2p out)" "CIIIIC"
seen "means of C, yes, correct, c, 50%" "$(grep '^Unable' -v out | sed -n 3p)" "1.0 1.0 0.0 0.0 0.0 "
