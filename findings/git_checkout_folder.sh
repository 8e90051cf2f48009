#!/usr/bin/env bash
# git 2.39.5: `git checkout COMMIT -- tests`, by which a grader puts the tests back
#
# Guess: the folder has then what it has in that commit.
# Behaviour: files of the commit are written, and none is removed: a `conftest.py` that was committed or added since then
# stays, and pytest runs it. `git status` lists what was put back, and not the file. `git restore --source=COMMIT tests`
# removes those that git knows, and neither removes others.
. "$(dirname "$0")/common.sh"
needs git
git --version
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
commit() { git add --all && git -c user.name=a -c user.email=a@example.com commit --quiet --message "$1"; }

git init --quiet repository
cd repository
mkdir tests
echo 'right' >tests/test_task.py
commit task
git tag task
echo 'wrong' >tests/test_task.py
touch tests/conftest.py
commit policy
touch tests/untracked.py
git checkout --quiet task -- tests
seen "files by checkout" "$(ls tests | xargs), $(cat tests/test_task.py)" "conftest.py test_task.py untracked.py, right"
seen "status" "$(git status --short | xargs)" "M tests/test_task.py ?? tests/untracked.py"
git restore --source=task tests
seen "files by restore" "$(ls tests | xargs)" "test_task.py untracked.py"
