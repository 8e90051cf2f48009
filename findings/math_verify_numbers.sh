#!/usr/bin/env bash
# math-verify 0.9.0: numbers of science and of other bases
#
# Guess: 1e5 is 100000; 0.0000016 and 0.0000019 are different; a subscript is the base, or the answer is not parsed.
# Behaviour: 1e5 alone is 1, and \boxed{1e5} is 1 times Euler's number times 5, while 1 \times 10^5 is right. Floats are
# rounded to six decimals, so that the charge of an electron is its mass. A subscript is dropped: 101_2 is 101, and not 5.
. "$(dirname "$0")/common.sh"
packages 'math-verify[antlr4_13_2]==0.9.0'

cat >verify.py <<'PYTHON'
from math_verify import parse, verify
for truth, *answers in (
    ("$100000$", "1e5", r"\boxed{1e5}", r"\boxed{1 \times 10^5}"),
    ("$1$", "1e5"),
    ("$0.0000016$", "$0.0000019$", "$0.0000026$"),
    (r"$1.6 \times 10^{-19}$", r"$9.1 \times 10^{-31}$", "$0.1$"),
    ("$101_2$", "$5$", "$101$"),
):
    print(*(verify(parse(truth), parse(answer)) for answer in answers))
PYTHON
python verify.py 2>errors >out || { cat errors >&2; exit 2; }
seen "100000: 1e5, boxed 1e5, boxed 1 times 10^5" "$(sed -n 1p out)" "False False True"
seen "1: 1e5" "$(sed -n 2p out)" "True"
seen "0.0000016: 0.0000019, 0.0000026" "$(sed -n 3p out)" "True False"
seen "1.6e-19: 9.1e-31, 0.1 (both in LaTeX)" "$(sed -n 4p out)" "True False"
seen "101_2: 5, 101" "$(sed -n 5p out)" "False True"
