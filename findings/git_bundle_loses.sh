#!/usr/bin/env bash
# git 2.39.5: a rollout's repository, kept as one file by `git bundle create --all` or `--branches`
#
# Guess: a clone of the file has all commits that the repository had by name, and the files.
# Behaviour: of the stash the file holds the last entry alone, and a clone has no name for it, unless it is made with --mirror. A file
# of `--branches` has no HEAD: its clone is an empty folder without a branch, with status 0 and a warning.
. "$(dirname "$0")/common.sh"
needs git
git --version
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com

git init --quiet --initial-branch=main task
echo 1 >task/file
git -C task add file && git -C task commit --quiet -m start
for text in 2 3; do echo "$text" >task/file && git -C task stash --quiet; done
git -C task bundle create "$work/all.bundle" --all 2>log
git -C task bundle create "$work/branches.bundle" --branches 2>log
git clone --quiet all.bundle all
git clone --quiet --mirror all.bundle mirror
git clone --quiet branches.bundle branches 2>warning && status=$?
stash() { # stash FOLDER: does it name a stash, and which of the two entries are among its objects
    git -C "$1" for-each-ref --format='%(refname)' refs/stash
    for entry in 0 1; do git -C "$1" cat-file -e "$(git -C task rev-parse "stash@{$entry}")" 2>log && echo "$entry" || true; done
}
seen "the stash, and its entries" "$(stash task | xargs)" "refs/stash 0 1"
seen "in a clone of --all" "$(stash all | xargs)" "0"
seen "in a clone of --all, with --mirror" "$(stash mirror | xargs)" "refs/stash 0"
seen "clone of --branches: status and files" "$status $(find branches -name file | wc -l)" "0 0"
seen "what it says" "$(cat warning)" "warning: remote HEAD refers to nonexistent ref, unable to checkout"
seen "local branches of it, and of a clone of --all" "$(git -C branches branch | wc -l) $(git -C all branch | wc -l)" "0 1"
