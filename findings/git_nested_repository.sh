#!/usr/bin/env bash
# git 2.39.5: a policy has made a repository within the repository of its task (`git init`, `git clone`, some generators)
#
# Guess: `git add -A` and `git diff --cached` have its files; `git reset --hard` and `git clean -fdx` bring the start back.
# Behaviour: the patch has one line with a commit in place of the files, and applies elsewhere as an empty folder, with
# status 0. The cleaning leaves the inner repository where it is, with status 0, for the next rollout to find; -ffdx takes it.
. "$(dirname "$0")/common.sh"
needs git
git --version
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com
commit() { git -C "$1" add -A && git -C "$1" commit --quiet -m "$1"; }
git init --quiet task && echo 1 >task/a && commit task
git clone --quiet task other
git init --quiet task/inner && echo answer >task/inner/solution && commit task/inner

git -C task add -A 2>warning
git -C task diff --cached >changes.patch
seen "lines of the patch that have the answer, that name a commit" \
    "$(grep -c answer changes.patch) $(grep -c '^+Subproject commit' changes.patch)" "0 1"
seen "status of applying it, and what lies in the folder" \
    "$(git -C other apply "$work/changes.patch" && echo $?; find other/inner -mindepth 1)" "0"
git -C task reset --quiet --hard 2>>warning
seen "status of cleaning, and what is left" "$(git -C task clean -fdxq; echo $?; cat task/inner/solution)" $'0\nanswer'
seen "with -ffdx" "$(git -C task clean -ffdxq; echo $?; ls task)" $'0\na'
