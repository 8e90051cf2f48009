#!/usr/bin/env bash
# EvalPlus 0.3.1, inspect-ai 0.3.285: pass@k of a task with fewer samples than k, and the answer of the majority
#
# Guess: an error, or 0 if no sample is right; a tie is one for each order of the samples.
# Behaviour: EvalPlus's `estimate_pass_at_k` is 1.0 for three wrong samples and k = 5, so that a task with lost samples lifts the mean.
# Inspect's `pass_at` is not a number there, and one such task makes the mean of all that. Its `mode` takes the first of equally frequent
# values, so that the order of the samples decides.
. "$(dirname "$0")/common.sh"
packages evalplus==0.3.1 inspect-ai==0.3.285

cat >few.py <<'PYTHON'
from evalplus.eval import estimate_pass_at_k
from inspect_ai.scorer import Score, mode_score, pass_at
print(estimate_pass_at_k([3], [0], 5)[0], estimate_pass_at_k([10, 3], [0, 0], 5).mean(), estimate_pass_at_k([5], [0], 5)[0])
def reduced(reducer, *values):
    return reducer([Score(value=value) for value in values]).value
print(reduced(pass_at(5), 0, 0, 0), reduced(pass_at(5), 0, 0, 1), reduced(pass_at(5), 0, 0, 0, 0, 0))
print(reduced(mode_score(), "C", "I"), reduced(mode_score(), "I", "C"))
PYTHON
python few.py 2>errors >out || { tail -5 errors >&2; exit 2; }
seen "EvalPlus: three wrong samples and k = 5; the mean with another task; five wrong ones" "$(sed -n 1p out)" "1.0 0.5 0.0"
seen "Inspect: three wrong, one of three right, five wrong" "$(sed -n 2p out)" "nan nan 0.0"
seen "Inspect: mode of C and I, and of I and C" "$(sed -n 3p out)" "C I"
