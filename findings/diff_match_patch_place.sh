#!/usr/bin/env bash
# diff-match-patch 20241021: an edit of a file, applied to a file that was changed since
#
# Guess: an edit is applied where its lines are, or it is refused, as of a patch whose context does not fit.
# Behaviour: an edit is made of characters, and goes to the nearest place that is half alike. That of a function which was removed changes
# the other one, that of a 42 changes a 7 in another sentence, and parts of "rm -r old" are put into "cat new.txt". What is meant
# to change timeout=30 changes timeout=90. The result is True each time.
. "$(dirname "$0")/common.sh"
packages diff-match-patch==20241021

cat >edit.py <<'PYTHON'
import diff_match_patch
tool = diff_match_patch.diff_match_patch()
def edit(old, new, file):
    text, applied = tool.patch_apply(tool.patch_make(old, new), file)
    print(text.replace("\n", "|"), *applied)
one = "def total(x):\n    return x + 1\n"
two = "\ndef count(x):\n    return x + 2\n"
edit(one + two, one + two.replace("2", "3"), one)
edit("connect(host, timeout=30)\n", "connect(host, timeout=60)\n", "connect(host, timeout=90)\n")
edit("The answer is 42.\n", "The answer is 43.\n", "The question is 6 times 7.\n")
edit("rm old.txt\n", "rm -r old\n", "cat new.txt\n")
PYTHON
python edit.py >out
seen "the edit of count, without count" "$(sed -n 1p out)" "def total(x):|    return x + 3| True"
seen "30 to 60, where 90 is" "$(sed -n 2p out)" "connect(host, timeout=60)| True"
seen "42 to 43, in another sentence" "$(sed -n 3p out)" "The question is 6 times 3.| True"
seen "rm old.txt to rm -r old, in cat new.txt" "$(sed -n 4p out)" "cat -r new| True"
