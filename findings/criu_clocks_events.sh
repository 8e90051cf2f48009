#!/usr/bin/env bash
# CRIU 4.2.1 (of the system, or as tvsnap's set-up builds it) on Linux 6.18.44: clocks, timers and events over a restore
#
# Guess: a timer for an absolute time of the day fires when that time has come, also if that was before the restore; the
# process's own time goes on; events that wait in a queue of inotify are still there, or the dump is refused.
# Behaviour: the timer waits as long as it had still to wait at the dump, and so fires late; the process's own time starts
# anew, so that a difference of `time.process_time()` is negative; the queue of inotify is empty, while its watch goes on. Dump
# and restore say that all is well.
. "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || { echo "needs root, for CRIU" >&2; exit 2; }
criu=${CRIU:-$(command -v criu || find /usr/local/lib/tvsnap -maxdepth 2 -type f -perm -u+x -name criu 2>/dev/null | sort -V | tail -n 1)}
[ -n "$criu" ] || { echo "CRIU is missing: this finding cannot be shown here" >&2; exit 2; }
"$criu" --version | sed -n 1p
uname -sr

cat >program.py <<'END'
import ctypes, os, select, time
libc = ctypes.CDLL(None)
def events():
    read = os.read(queue, 4096) if select.select([queue], [], [], 0)[0] else b""
    return [name for name in ("before", "after") if name.encode() in read]
os.mkdir("watched")
queue = libc.inotify_init1(0)
libc.inotify_add_watch(queue, b"watched", 0x100)  # IN_CREATE
open("watched/before", "w").close()
while time.process_time() < 2:
    pass
used = time.process_time()
due = int(time.time()) + 20
timer = libc.timerfd_create(0, 0)  # CLOCK_REALTIME
libc.timerfd_settime(timer, 1, (ctypes.c_long * 4)(0, 0, due, 0), None)  # TFD_TIMER_ABSTIME
with open("due", "w") as file:
    file.write(str(due))
os.rename("due", "ready")
while not os.path.exists("go"):
    time.sleep(0.1)
ready = bool(select.select([timer], [], [], 0)[0])
left = (ctypes.c_long * 4)()
libc.timerfd_gettime(timer, left)
kept = events()
open("watched/after", "w").close()
with open("out", "w") as file:
    print(time.time() > due, ready, left[2] >= 3, file=file)
    print(time.process_time() > used, file=file)
    print(kept, events(), file=file)
os.rename("out", "result")
while True:
    time.sleep(1)
END
mkdir images
setsid python3 program.py </dev/null >/dev/null 2>&1 &
process=$!
stop() { kill -KILL "$process" 2>/dev/null || true; }
at_end+=(stop)
disown
for _ in $(seq 300); do [ -e ready ] || sleep 0.1; done
status=0
"$criu" dump -t "$process" -D images -v0 >said 2>&1 || status=$?
seen "status of the dump" "$status" 0
while [ -e "/proc/$process" ] || [ "$(date +%s)" -le "$(cat ready)" ]; do sleep 0.1; done
"$criu" restore -d -D images -v0 >said 2>&1 || status=$?
seen "status of the restore" "$status" 0
touch go
for _ in $(seq 300); do [ -e result ] || sleep 0.1; done
seen "is it later than the timer's time, has it fired, are there still seconds to go" "$(sed -n 1p result)" "True False True"
seen "is the process's own time more than before" "$(sed -n 2p result)" False
seen "events from before the dump, and after the restore" "$(sed -n 3p result)" "[] ['after']"
