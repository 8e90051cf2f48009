#!/usr/bin/env bash
# codebleu 0.7.0 (tree-sitter 0.22.3, tree-sitter-python 0.21.0): programs that equal their references, that differ, and none
#
# Guess: 1 for equal programs, 0 for an empty one; the parts for syntax and data flow see another operator or constant.
# Behaviour: of equal programs "print(1)" has 0.56, "x = 1" 0.76, and only longer ones 1; an empty answer has 0.25, as much as
# one of the four parts. Syntax and data flow are 1 for `b - 1` in place of `a + 1`: operators, names and constants are
# no part of them.
. "$(dirname "$0")/common.sh"
packages codebleu==0.7.0 tree-sitter==0.22.3 tree-sitter-python==0.21.0

cat >score.py <<'PYTHON'
from codebleu import calc_codebleu
function = "def f(a):\n    return a + 1"
for reference, answer in (
    (function, function), ("print(1)", "print(1)"), ("x = 1", "x = 1"), (function, ""), (function, "def f(b):\n    return b - 2"),
):
    score = calc_codebleu([reference], [answer], lang="python")
    print(*(f"{score[part]:.2f}" for part in ("codebleu", "syntax_match_score", "dataflow_match_score")))
PYTHON
python score.py 2>errors >out || { cat errors >&2; exit 2; }
seen "an equal function: all, syntax, data flow" "$(sed -n 1p out)" "1.00 1.00 1.00"
seen "an equal print(1)" "$(sed -n 2p out | cut -d' ' -f1)" 0.56
seen "an equal x = 1" "$(sed -n 3p out | cut -d' ' -f1)" 0.76
seen "an empty answer" "$(sed -n 4p out)" "0.25 0.00 0.00"
seen "b - 2 for a + 1" "$(sed -n 5p out)" "0.53 1.00 1.00"
