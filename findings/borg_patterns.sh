#!/usr/bin/env bash
# Borg 1.2.4, as in Debian 12: `borg create --exclude` and `borg extract` with names and patterns
#
# Guess: `build` leaves out each folder of this name, as for git, tar and rsync; `*` ends at a slash; the paths of `extract` are patterns, too.
# Behaviour: `build`, `build/` and the whole path leave out nothing, with status 0. `task/build` leaves out the folder, `task/build/` only what is in
# it. `task/*.log` leaves out logs of all subfolders, as its `*` does not end at a slash; that of `sh:task/*.log` does. For `extract`, `task/*.log` is
# a path, which is not there.
. "$(dirname "$0")/common.sh"
for package in python3-msgpack python3-packaging python3-pkg-resources borgbackup; do debian "$package"; done
export PYTHONPATH=$work/debian/usr/lib/python3/dist-packages HOME=$work
borg --version 2>errors || { cat errors >&2; exit 2; }
export BORG_REPO=$work/repository BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes
borg init --encryption none

mkdir -p task/build task/logs
touch task/build/b task/logs/deep.log task/top.log
all="task task/build task/build/b task/logs task/logs/deep.log task/top.log"
saved() {
    borg create --exclude "$1" ::now task
    borg list --short ::now | sort | xargs
    borg delete ::now
}
seen "without build" "$(saved build)" "$all"
seen "without build/" "$(saved build/)" "$all"
seen "without its whole path" "$(saved "$work/task/build")" "$all"
seen "without task/build" "$(saved task/build)" "task task/logs task/logs/deep.log task/top.log"
seen "without task/build/" "$(saved task/build/)" "task task/build task/logs task/logs/deep.log task/top.log"
seen "without task/*.log" "$(saved 'task/*.log')" "task task/build task/build/b task/logs"
seen "without sh:task/*.log" "$(saved 'sh:task/*.log')" "task task/build task/build/b task/logs task/logs/deep.log"
borg create ::all task
mkdir out
cd out
borg extract ::all 'task/*.log' 2>said && status=0 || status=$?
seen "borg extract of task/*.log" "$status $(cat said)" "1 Include pattern 'task/*.log' never matched."
borg extract ::all 'sh:task/*.log'
seen "borg extract of sh:task/*.log" "$(find task -type f)" "task/top.log"
