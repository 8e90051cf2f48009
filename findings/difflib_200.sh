#!/usr/bin/env bash
# Python 3.11.7: `difflib.SequenceMatcher(None, a, b).ratio()` as a reward for how near a text is to the right one
#
# Guess: a text with one more line at its start is near, whatever its length; and it does not matter which of them is first.
# Behaviour: in a second text of 200 characters or more, those that make up more than 1 % of it count as junk, which are all
# that occur in code: 0.974 for 199 characters is 0.0 for 200. `autojunk=False` gives 0.974. For short ones, "tide" and
# "diet" have 0.25, and "diet" and "tide" 0.5.
. "$(dirname "$0")/common.sh"
python3 --version

cat >ratio.py <<'PYTHON'
from difflib import SequenceMatcher
code = "".join(f"v{number} = {number}\n" for number in range(100))
for length in (199, 200):
    right = code[:length - 10]
    answer = "# changed\n" + right
    print(*(round(SequenceMatcher(None, right, answer, autojunk=junk).ratio(), 3) for junk in (True, False)))
print(SequenceMatcher(None, "tide", "diet").ratio(), SequenceMatcher(None, "diet", "tide").ratio())
PYTHON
python3 ratio.py >out
seen "199 characters, with and without autojunk" "$(sed -n 1p out)" "0.974 0.974"
seen "200 characters" "$(sed -n 2p out)" "0.0 0.974"
seen "tide and diet, diet and tide" "$(sed -n 3p out)" "0.25 0.5"
