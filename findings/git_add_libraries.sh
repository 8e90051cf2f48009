#!/usr/bin/env bash
# GitPython 3.2.1, dulwich 1.2.21, git 2.39.5: all of a task's folder is committed, as a snapshot of a rollout
#
# Guess: the same commit as by `git add --all`.
# Behaviour: GitPython's `index.add("*")` adds ignored files, keeps those that were removed, and leaves out what `.gitattributes` says,
# so that the folder is "dirty" right behind the commit; `untracked_files` skips ignored ones, and removed ones stay as well. dulwich leaves out a
# symbolic link to a folder.
. "$(dirname "$0")/common.sh"
needs git
git --version
packages GitPython==3.2.1 dulwich==1.2.21
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com

task() { # task FOLDER: a repository, with changes
    git init --quiet "$1"
    printf '*.log\n' >"$1/.gitignore"
    printf '*.txt text eol=lf\n' >"$1/.gitattributes"
    echo old >"$1/removed"
    git -C "$1" add --all && git -C "$1" commit --quiet -m start
    rm "$1/removed"
    echo secret >"$1/run.log"
    printf 'line\r\n' >"$1/lines.txt"
    mkdir "$1/data"
    echo 1 >"$1/data/rows"
    ln -s data "$1/link"
}
committed() { # committed FOLDER: the files in the commit, the size of one, and what git sees as changed since
    git -C "$1" ls-tree -r --name-only HEAD | grep -v '^[.]git' | xargs
    git -C "$1" cat-file -s HEAD:lines.txt
    git -C "$1" status --short | xargs
}
for each in command gitpython untracked dulwich; do task "$each"; done
git -C command add --all 2>/dev/null
git -C command commit --quiet -m all
cat >add.py <<'PYTHON'
import os
import git
from dulwich import porcelain
repository = git.Repo("gitpython")
repository.index.add("*")
repository.index.commit("all")
repository = git.Repo("untracked")
repository.index.add(repository.untracked_files)
repository.index.commit("all")
print(repository.is_dirty())
os.chdir("dulwich")
porcelain.add(".")
porcelain.commit(".", message=b"all", author=b"a <a@example.com>", committer=b"a <a@example.com>")
PYTHON
python add.py >out
seen "by git add --all" "$(committed command | xargs)" "data/rows lines.txt link 5"
seen 'by GitPython, index.add("*")' "$(committed gitpython | xargs)" "data/rows lines.txt link removed run.log 6 M lines.txt D removed"
seen "by GitPython, untracked_files; is_dirty" "$(committed untracked | xargs) $(cat out)" \
    "data/rows lines.txt link removed 6 M lines.txt D removed True"
seen "by dulwich" "$(committed dulwich | xargs)" "data/rows lines.txt 5 ?? link"
