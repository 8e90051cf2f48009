#!/usr/bin/env bash
# GNU patch 2.7.6 and git 2.39.5: a patch for the second of two classes with like methods, after lines were added above
#
# Guess: the second one is changed, or the patch is refused, as its lines are not where it says.
# Behaviour: both look for the nearest place at which the lines of the context fit, in both directions, and change the method of
# the first class. The status is 0; patch and `git apply -v` say "offset -1 lines". That the header of the hunk names the
# class, as `git diff` writes it, is not looked at.
. "$(dirname "$0")/common.sh"
needs git patch
patch --version | sed -n 1p
git --version
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null

class() { printf '%s\n' "class $1:" '    def total(self):' '        if self.empty:' '            return 0' "        result = $2" \
    '        for part in self.parts:' '            result += part' '        return result' ''; }
mkdir old new
{ class Box 0; class Bag 0; } >old/task.py
{ class Box 0; class Bag 1; } >new/task.py
{ git diff --no-index old/task.py new/task.py || true; } | sed -E 's#([ab])/(old|new)/#\1/#g' >change.patch
seen "the hunk's header" "$(sed -n 's/^@@.*@@ *//p' change.patch)" "class Bag:"
changed() { sed -n '/^class/h; /result = 1/{x; p}' task.py; }
apply() {
    { seq 8 | sed 's/^/import module/'; class Box 0; class Bag 0; } >task.py
    "$@" change.patch >log 2>&1 && echo "0 $(changed)" || echo $?
}
seen "by patch" "$(apply patch -p1 -i)" "0 class Box:"
seen "by git apply" "$(apply git apply -v)" "0 class Box:"
