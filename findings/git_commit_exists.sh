#!/usr/bin/env bash
# git 2.39.5: whether the commit that a task begins at is in a repository, of which perhaps only a part was cloned
#
# Guess: `git rev-parse --verify COMMIT` fails if there is no such commit, as it does for the name of a branch.
# Behaviour: it prints each text of 40 hexadecimal digits, with status 0; a digit less is an error. `name-rev` has status 0, too. With
# ^{commit} behind it, or by `git cat-file -e`, it is looked for.
. "$(dirname "$0")/common.sh"
needs git
git --version
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com

git init --quiet task
cd task
git commit --quiet --allow-empty -m start
status() { git "$@" >../log 2>&1 && echo 0 || echo $?; }
missing=0123456789012345678901234567890123456789
seen "rev-parse --verify" "$(status rev-parse --verify $missing)" "0"
seen "what it prints" "$(cat ../log)" "$missing"
seen "rev-parse --verify, with a digit less" "$(status rev-parse --verify ${missing%?})" "128"
seen "rev-parse --verify of a branch" "$(status rev-parse --verify missing)" "128"
seen "name-rev" "$(status name-rev $missing)" "0"
seen "rev-parse --verify with ^{commit}" "$(status rev-parse --verify "$missing^{commit}")" "128"
seen "cat-file -e" "$(status cat-file -e $missing)" "1"
