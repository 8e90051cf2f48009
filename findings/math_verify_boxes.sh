#!/usr/bin/env bash
# math-verify 0.9.0: several answers in one text
#
# Guess: the last one counts, as a policy that corrects itself means that one; at least in each form of answer the same.
# Behaviour: two boxes are the set of both, so that neither alone is right, with any text between them. Of two sentences
# "the answer is" the last counts; but one such sentence counts more than the correction below it.
. "$(dirname "$0")/common.sh"
packages 'math-verify[antlr4_13_2]==0.9.0'

cat >verify.py <<'PYTHON'
from math_verify import parse, verify
for answer in (
    r"I get \boxed{5}. But this is wrong, for I forgot the two. So it is \boxed{7}",
    "The final answer is $5$. Wait, the final answer is $7$.",
    "The answer is 5. Wait, the answer is 7.",
    "The answer is 5. Wait, it is 7.",
    "First 5, then 7",
):
    print(*(truth for truth in ("5", "7", r"\{5,7\}") if verify(parse(f"${truth}$"), parse(answer))))
PYTHON
python verify.py 2>errors >out || { cat errors >&2; exit 2; }
cat out
seen "right for 5 in a box, 7 in a box" "$(sed -n 1p out)" '\{5,7\}'
seen "right for the final answer is 5, the final answer is 7" "$(sed -n 2p out)" "7"
seen "right for the answer is 5, the answer is 7" "$(sed -n 3p out)" "7"
seen "right for the answer is 5, it is 7" "$(sed -n 4p out)" "5"
seen "right for bare 5 and 7" "$(sed -n 5p out)" "7"
