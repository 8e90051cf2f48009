#!/usr/bin/env bash
# rsync 3.5.0, as in Debian 12: a folder that is copied a second time, after a file was changed within the second
#
# Guess: times are kept with their fractions, as `rsync -a` sets them, and so they are compared.
# Behaviour: only whole seconds are compared, and the size: a reward that became 1 in the second in which it was 0 stays 0 in the copy,
# with status 0. With `--modify-window=-1` or `--checksum` it is copied.
. "$(dirname "$0")/common.sh"
export LD_LIBRARY_PATH=$work/debian/usr/lib/$(uname -m)-linux-gnu
debian libpopt0
debian rsync
rsync --version | sed -n 1p

mkdir task
write() { echo "$1" >task/reward; touch -d "$2" task/reward; }
write 0 '2026-01-01 10:00:00.2'
rsync -a task/ copy/
seen "fraction of the copy's time" "$(date -r copy/reward +%N)" "200000000"
write 1 '2026-01-01 10:00:00.7'
rsync -a --delete task/ copy/
seen "the reward in the copy" "$(cat copy/reward)" "0"
rsync -a --dry-run --itemize-changes task/ copy/ >out
seen "what --itemize-changes says" "$(cat out)" ""
rsync -a --modify-window=-1 task/ copy/
seen "with --modify-window=-1" "$(cat copy/reward)" "1"
