#!/usr/bin/env bash
# libfaketime 0.9.10, as in Debian 12: a task that is run with a fixed date
#
# Guess: one clock for all processes of the task, and the times of files as it says.
# Behaviour: with FAKETIME=@DATE each process begins at that date anew, so that a later one has earlier times. Without @ the clock stands
# still, and so does `time.monotonic`, by which programs measure and wait. Files that are written have the real time, which is in the
# future. With -10d, `touch` sets the time of ten days ago; `date -r` takes off ten days more, and `stat` does not.
. "$(dirname "$0")/common.sh"
debian libfaketime
library=$(echo debian/usr/lib/*/faketime/libfaketime.so.1)
export TZ=UTC
at() { # at FAKETIME COMMAND...
    env LD_PRELOAD="$work/$library" FAKETIME="$1" "${@:2}"
}
at '@2026-01-01 00:00:00' sh -c 'date +%T; sleep 2; date +%T' >times
seen "the time in a process, and two seconds later in the next" "$(xargs <times)" "00:00:00 00:00:00"
cat >still.py <<'PYTHON'
import os
import time
began = time.time(), time.monotonic()
time.sleep(0.2)
print(time.time() - began[0], time.monotonic() - began[1])
with open("written", "w"):
    pass
print(os.stat("written").st_mtime > time.time() + 3600)
PYTHON
at '2020-01-01 00:00:00' "${FINDINGS_PYTHON:-python3}" still.py >out
seen "clocks after 0.2 seconds, without @" "$(sed -n 1p out)" "0.0 0.0"
seen "is a written file of the future" "$(sed -n 2p out)" "True"
days() { echo $((($(date +%s) - $1 + 43200) / 86400)); }
at -10d touch file
seen "days since touch with -10d" "$(days "$(stat -c %Y file)")" "10"
seen "as date -r sees it, with -10d" "$(days "$(at -10d date -r file +%s)")" "20"
seen "as stat sees it, with -10d" "$(days "$(at -10d stat -c %Y file)")" "10"
