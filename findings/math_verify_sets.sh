#!/usr/bin/env bash
# math-verify 0.9.0: sets, intervals, and which of both is the truth
#
# Guess: {1, 2} is not an interval; equations keep their names; what is equal is so from both sides.
# Behaviour: {1, 2} is the open interval (1, 2), and (1, 2) the pair. For x = 1, y = 2 the answer "2, 1" is right. For the
# truth x > 3 the interval from 3 is right, for the interval as the truth x > 3 is wrong, as is 0 < x < 1 for (0, 1).
. "$(dirname "$0")/common.sh"
packages 'math-verify[antlr4_13_2]==0.9.0'

cat >verify.py <<'PYTHON'
from math_verify import parse, verify
for truth, answer in (
    (r"$\{1,2\}$", "$(1,2)$"), ("$(1,2)$", r"$\{1,2\}$"), ("$(1,2)$", "$1,2$"), ("$x=1,y=2$", "$2,1$"),
    ("$x=1,y=2$", "$x=2,y=1$"), ("$x>3$", r"$(3,\infty)$"), (r"$(3,\infty)$", "$x>3$"), ("$(0,1)$", "$0<x<1$"),
):
    print(verify(parse(truth), parse(answer)))
PYTHON
python verify.py 2>errors >out || { cat errors >&2; exit 2; }
cat out
seen "the set {1, 2}: (1, 2)" "$(sed -n 1p out)" "True"
seen "(1, 2): the set {1, 2}" "$(sed -n 2p out)" "True"
seen "(1, 2): 1, 2" "$(sed -n 3p out)" "True"
seen "x = 1, y = 2: 2, 1" "$(sed -n 4p out)" "True"
seen "x = 1, y = 2: x = 2, y = 1" "$(sed -n 5p out)" "False"
seen "x > 3: the interval from 3" "$(sed -n 6p out)" "True"
seen "the interval from 3: x > 3" "$(sed -n 7p out)" "False"
seen "(0, 1): 0 < x < 1" "$(sed -n 8p out)" "False"
