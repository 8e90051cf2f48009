#!/usr/bin/env bash
# git 2.39.5: rollouts in worktrees of one repository, of which each puts its changes aside by `git stash`
#
# Guess: a worktree has its own files, index and HEAD, and so its own stash.
# Behaviour: the stash is one of the repository. `git stash pop` in one worktree takes what another put there last, with
# status 0; the other finds an older entry, or none. `git config` in one worktree counts for all of them as well.
. "$(dirname "$0")/common.sh"
needs git
git --version
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com
git init --quiet base && echo start >base/file && git -C base add file && git -C base commit --quiet -m start
for each in one two; do git -C base worktree add --quiet "$work/$each"; done

for each in one two; do echo "$each" >$each/file && git -C $each stash push --quiet; done
git -C one stash pop --quiet && status=$?
seen "status of pop in the first, and its file" "$status $(cat one/file)" "0 two"
git -C two stash pop --quiet
seen "file of the second" "$(cat two/file)" "one"
git -C one config rollout.number 1
seen "setting of the first, read in the second" "$(git -C two config rollout.number)" "1"
