#!/usr/bin/env bash
# unidiff 1.0.1: a policy's patch of a file with lines that end with \r\n, read and written again
#
# Guess: `str` of what was read is the patch; it does not matter whether it was read from a file or from a text.
# Behaviour: `PatchSet.from_filename` drops each \r, so that the patch no longer applies; from a text it keeps them. With
# newline="" it does, too.
. "$(dirname "$0")/common.sh"
needs git
packages unidiff==1.0.1
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null

printf 'one\r\nbug\r\n' >file
printf -- '--- a/file\n+++ b/file\n@@ -1,2 +1,2 @@\n one\r\n-bug\r\n+fix\r\n' >change.patch
cat >write.py <<'PYTHON'
import sys
from unidiff import PatchSet
if sys.argv[1] == "file":
    patch = PatchSet.from_filename("change.patch")
elif sys.argv[1] == "newline":
    patch = PatchSet.from_filename("change.patch", newline="")
else:
    with open("change.patch", newline="") as file:
        patch = PatchSet(file.read())
with open("again.patch", "w", newline="") as out:
    out.write(str(patch))
PYTHON
again() {
    python write.py "$1" && git apply --check again.patch 2>>log && echo applies || echo "does not apply"
}
seen "the patch itself" "$(git apply --check change.patch && echo applies)" "applies"
seen "through PatchSet.from_filename" "$(again file)" "does not apply"
seen "through PatchSet of its text" "$(again text)" "applies"
seen "through PatchSet.from_filename with newline=''" "$(again newline)" "applies"
