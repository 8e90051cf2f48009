#!/usr/bin/env bash
# SymPy 1.12 and 1.14.0: answers that a reward compares as expressions
#
# Guess: 0.5 equals 1/2; `sympify` and `parse_expr` read the same text as the same number; what is no expression is an error.
# Behaviour: 0.5 == 1/2 is true in 1.12 and false in 1.14; 0.1 + 0.2 - 0.3 == 0 is false in both. "10^5" is
# 100000 for `sympify` and 15 for `parse_expr`, which takes it for an exclusive or. "1,000" is the pair of 1 and 0 for both,
# and equals "1,0".
. "$(dirname "$0")/common.sh"

cat >compare.py <<'PYTHON'
from sympy import sympify
from sympy.parsing.sympy_parser import parse_expr
print(sympify("0.5") == sympify("1/2"), sympify("0.5 - 1/2") == 0, sympify("0.1 + 0.2 - 0.3") == 0)
print(sympify("10^5"), parse_expr("10^5"), sympify("1,000"), parse_expr("1,000"), sympify("1,000") == sympify("1,0"))
PYTHON
packages sympy==1.12
python compare.py >old
packages sympy==1.14.0
python compare.py >new
seen "1.12: 0.5 == 1/2, 0.5 - 1/2 == 0, 0.1 + 0.2 - 0.3 == 0" "$(sed -n 1p old)" "True True False"
seen "1.14: the same" "$(sed -n 1p new)" "False True False"
seen "1.14: 10^5 and 1,000 by sympify and parse_expr, 1,000 == 1,0" "$(sed -n 2p new)" "100000 15 (1, 0) (1, 0) True"
