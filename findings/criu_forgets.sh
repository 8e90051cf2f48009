#!/usr/bin/env bash
# CRIU 4.2.1 (of the system, or as tvsnap's set-up builds it) on Linux 6.18.44: attributes of a process after a restore
#
# Guess: what a process has set for itself is there after a restore, or the dump says that it cannot be kept.
# Behaviour: nice value, scheduling policy and oom_score_adj come back; the slack of timers, the I/O priority and the
# filter of core dumps are those of CRIU's own process again. Dump and restore say that all is well.
. "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || { echo "needs root, for CRIU" >&2; exit 2; }
needs ionice chrt
criu=${CRIU:-$(command -v criu || find /usr/local/lib/tvsnap -maxdepth 2 -type f -perm -u+x -name criu 2>/dev/null | sort -V | tail -n 1)}
[ -n "$criu" ] || { echo "CRIU is missing: this finding cannot be shown here" >&2; exit 2; }
"$criu" --version | sed -n 1p
uname -sr

cat >program.py <<'END'
import ctypes, os, time
ctypes.CDLL(None).prctl(29, 123_456_789, 0, 0, 0)  # PR_SET_TIMERSLACK, in nanoseconds
os.nice(3)
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
open("/proc/self/oom_score_adj", "w").write("500")
open("/proc/self/coredump_filter", "w").write("0x3")
os.system(f"ionice -c 3 -p {os.getpid()}")
open("ready", "w").close()
while True:
    time.sleep(0.1)
END
mkdir images
setsid python3 program.py </dev/null >out 2>&1 &
process=$!
stop() { kill -KILL "$process" 2>/dev/null || true; }
at_end+=(stop)
disown
for _ in $(seq 100); do [ -e ready ] || sleep 0.1; done
kept() { echo "nice $(ps -o ni= "$process" | xargs), $(chrt -p "$process" | sed -n 's/.*policy: //p'), oom_score_adj $(cat "/proc/$process/oom_score_adj")"; }
slack() { cat "/proc/$process/timerslack_ns"; }
priority() { ionice -p "$process"; }
filter() { cat "/proc/$process/coredump_filter"; }
state="nice 3, SCHED_BATCH, oom_score_adj 500"
seen "before" "$(kept), $(slack), $(priority), $(filter)" "$state, 123456789, idle, 00000003"
status=0
"$criu" dump -t "$process" -D images -v0 >said 2>&1 || status=$?
seen "status of the dump" "$status" 0
while [ -e "/proc/$process" ]; do sleep 0.1; done
"$criu" restore -d -D images -v0 >said 2>&1 || status=$?
seen "status of the restore" "$status" 0
seen "after, kept" "$(kept)" "$state"
seen "after, slack of timers" "$(slack)" "$(cat /proc/self/timerslack_ns)"
seen "after, I/O priority" "$(priority)" "$(ionice)"
seen "after, filter of core dumps" "$(filter)" "$(cat /proc/self/coredump_filter)"
