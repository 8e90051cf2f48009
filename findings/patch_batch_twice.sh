#!/usr/bin/env bash
# GNU patch 2.7.6: `patch --batch`, as harnesses apply a policy's patch, in a state that has the patch already
#
# Guess: an error, as for --force, or nothing happens, as the change is there.
# Behaviour: the patch is taken back, with status 0: tests then run on the unsolved task. --force and --forward fail with
# status 1 and leave the file as it is; so does `git apply`.
. "$(dirname "$0")/common.sh"
needs patch git
patch --version | head -n 1
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null

cat >change.patch <<'PATCH'
--- a/file
+++ b/file
@@ -1,3 +1,3 @@
 one
-bug
+fix
 three
PATCH
twice() {
    printf 'one\nbug\nthree\n' >file
    "$@" <change.patch >>log 2>&1
    "$@" <change.patch >>log 2>&1 && echo "0 $(sed -n 2p file)" || echo "$? $(sed -n 2p file)"
}
seen "--batch: status of the second time, and the line" "$(twice patch --batch --fuzz=5 -p1)" "0 bug"
seen "--force" "$(twice patch --force -p1)" "1 fix"
seen "--forward" "$(twice patch --forward -p1)" "1 fix"
seen "git apply" "$(twice git apply)" "1 fix"
