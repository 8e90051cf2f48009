#!/usr/bin/env bash
# git 2.39.5: `git apply` of a policy's patch in a folder that lies within a repository
#
# Guess: it works as `patch -p1` does in the same folder; or it fails, if the files of the patch are not there.
# Behaviour: names are those of the repository's root, and what is not below the current folder is left out: nothing is
# changed, nothing is said, and the status is 0, also with --check. A copy of the code that was unpacked somewhere within
# a repository is such a folder. Outside of any repository the same command changes the file.
. "$(dirname "$0")/common.sh"
needs git patch
git --version
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
tree() { mkdir -p "$1/src" && echo old >"$1/src/a"; }
tree old && tree new && echo new >new/src/a
{ git diff --no-index old/src/a new/src/a || true; } | sed -E 's#([ab])/(old|new)/#\1/#g' >change.patch

mkdir repository && git -C repository init --quiet
for folder in repository/unpacked outside; do
    tree $folder
    (cd $folder && git apply --check "$work/change.patch" && git apply "$work/change.patch"; echo "$? $(cat src/a)") >$folder.seen 2>&1
done
seen "within a repository: status and contents" "$(cat repository/unpacked.seen)" "0 old"
seen "outside" "$(cat outside.seen)" "0 new"
(cd repository/unpacked && patch -p1 --silent <"$work/change.patch")
seen "within, by patch -p1" "$(cat repository/unpacked/src/a)" "new"
