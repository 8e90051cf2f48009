#!/usr/bin/env bash
# openai-agents 0.24.0: `apply_diff`, which changes a file for the tool `apply_patch` of a model
#
# Guess: an error, if the line behind @@ is not in the file, as for lines that are not there; numbers of lines count.
# Behaviour: a line behind @@ that is not there is passed over, and the first place that fits is changed: another function. Numbers, as in
# git's header, do not count. Lines fit without their indentation, and those that are added keep the model's, which is another; added lines
# without others go to the start of the file. An earlier place behind a later one is an error.
. "$(dirname "$0")/common.sh"
packages openai-agents==0.24.0

cat >program.py <<'PYTHON'
def first():
    return 1

def second():
    return 1

def third():
    return 1
PYTHON
cat >edit.py <<'PYTHON'
import sys
from agents import apply_diff
before = open("program.py").read()
try:
    after = apply_diff(before, sys.argv[1].replace("|", "\n") + "\n")
except ValueError as error:
    sys.exit(str(error).split(":")[0])
print(*(f"{number}:{line}" for number, line in enumerate(after.split("\n"), 1) if line not in before.split("\n")), sep=";")
PYTHON
edit() { python edit.py "$1" 2>&1; }
seen "with def second" "$(edit '@@ def second():|-    return 1|+    return 2')" "5:    return 2"
seen "with def fourth, which is not there" "$(edit '@@ def fourth():|-    return 1|+    return 2')" "2:    return 2"
seen "without a line" "$(edit '@@|-    return 1|+    return 2')" "2:    return 2"
seen "with the numbers of line 8" "$(edit '@@ -8,1 +8,1 @@|-    return 1|+    return 2')" "2:    return 2"
seen "a removed line that is not there" "$(edit '@@ def second():|-    return 3|+    return 2' || true)" "Invalid Context 4"
seen "without the indentation" "$(edit '@@ def second():|-return 1|+return 2')" "5:return 2"
seen "only an added line, with def fourth" "$(edit '@@ def fourth():|+    print(2)')" "1:    print(2)"
seen "the third, and then the second" "$(edit '@@ def third():|-    return 1|+    return 3|@@ def second():|-    return 1|+    return 2' || true)" "Invalid Context 8"
