#!/usr/bin/env bash
# git 2.39.5: an agent's commits, kept by `git format-patch` and put into another clone by `git am`
#
# Guess: they come back with their messages, as both commands are made for this.
# Behaviour: a line "---" ends the message, a tag like [agent] is cut off, a line "From:" at the beginning is the author, and two first lines
# are one. A diff that the message shows is applied as well, or the whole is refused if it does not fit. Carriage returns are dropped
# from the patch, so that a change of a file with them is refused.
. "$(dirname "$0")/common.sh"
needs git
git --version
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com

git init --quiet rollout
echo 'limit = 5' >rollout/settings
printf 'a\r\nb\r\n' >rollout/windows
git -C rollout add --all && git -C rollout commit --quiet -m start
git clone --quiet rollout other
commit() { # commit MESSAGE: one commit with a file of its own, put into the other clone; prints its message there
    echo new >>"rollout/$((number += 1))"
    git -C rollout add --all
    printf '%b' "$1" | git -C rollout commit --quiet --cleanup=verbatim -F -
    git -C rollout format-patch --quiet --stdout -1 >patch
    if git -C other am --quiet "$work/patch" >log 2>&1; then
        git -C other log -1 --format='%an: %B' | grep . | paste -sd '|'
    else
        git -C other am --abort
        echo refused
    fi
}
number=0
seen "a tag, and a line of three dashes" "$(commit '[agent] Fix it\n\nBefore.\n\n---\n\nAfter.\n')" "a: Fix it|Before."
seen "two first lines" "$(commit 'First\nsecond\n')" "a: First second"
seen "a line From:" "$(commit 'Title\n\nFrom: b <b@example.com>\n\nBody.\n')" "b: Title|Body."
shown='Title\n\nI did not do this:\n\n--- a/settings\n+++ b/settings\n@@ -1 +1 @@\n-limit = 5\n+limit = 9\n'
seen "a diff as an example, that fits" "$(commit "$shown")" "a: Title|I did not do this:"
seen "the file of this example, there and here" "$(cat other/settings rollout/settings | paste -sd '|')" "limit = 9|limit = 5"
seen "the same example once more" "$(commit "$shown")" "refused"
printf 'a\r\nc\r\n' >rollout/windows
seen "a change of a file with carriage returns" "$(commit 'Title\n')" "refused"
