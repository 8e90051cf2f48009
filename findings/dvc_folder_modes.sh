#!/usr/bin/env bash
# DVC 3.63.0: a task's folder, with `dvc add`, and taken from the cache again
#
# Guess: as by git, the permission to execute and symbolic links come back; only empty folders are missing.
# Behaviour: only names and contents do. `dvc add` itself replaces links in the folder by files with the text they lead to, also those that lead
# out of it; from the cache, a script cannot be run, and a link to a folder is missing, without a word. `dvc status` says "up to date" before and
# after, also once the permission is set again.
. "$(dirname "$0")/common.sh"
needs git
packages dvc==3.63.0 pathspec==0.12.1
export DVC_NO_ANALYTICS=1 PATH=$work/venv/bin:$PATH
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
git init --quiet task
cd task
dvc init --quiet
mkdir -p data/logs data/cases
printf '#!/bin/sh\necho passed\n' >data/run.sh
chmod +x data/run.sh
echo 1 >data/cases/one
echo outside >outside
ln -s run.sh data/link
ln -s cases data/all
ln -s ../outside data/note
show() { (cd data && stat --format '%n %A' all link note run.sh 2>/dev/null || true) | xargs; }
seen "the folder, as it was made" "$(show)" "all lrwxrwxrwx link lrwxrwxrwx note lrwxrwxrwx run.sh -rwxr-xr-x"
dvc add --quiet data 2>../log
seen "after dvc add" "$(show)" "all lrwxrwxrwx link -rw-r--r-- note -rw-r--r-- run.sh -rwxr-xr-x"
seen "what dvc status says" "$(dvc status 2>../log)" "Data and pipelines are up to date."
rm -r data
dvc checkout --quiet
seen "from the cache" "$(show)" "link -rw-r--r-- note -rw-r--r-- run.sh -rw-r--r--"
seen "the text of note" "$(cat data/note)" "outside"
seen "whether the empty folder is there" "$([ -e data/logs ] && echo yes || echo no)" "no"
seen "what dvc status says" "$(dvc status 2>../log)" "Data and pipelines are up to date."
chmod +x data/run.sh
seen "with the permission" "$(dvc status 2>../log)" "Data and pipelines are up to date."
