"""What the kernel keeps of processes, descriptors, terminals: seen when a call changes it, and kept by a fork."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import Lab, changed, eventually, job, sh, still
from tvsnap.host.waiting import LATE_S
from tvsnap.model.errors import NotCheckpointable
from tvsnap.model.observations import Outcome
from tvsnap.sandboxes.protocol import Sandbox

POKE = """
import os, sys
pid, shared = int(sys.argv[1]), len(sys.argv) > 2
for line in open(f"/proc/{pid}/maps"):
    if ("memfd" if shared else "[heap]") in line:
        at = int(line.split("-")[0], 16) + 64
with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
    old = os.pread(memory.fileno(), 1, at)[0]
    os.pwrite(memory.fileno(), bytes([old ^ 1]), at)
"""
VECTOR = """
import ctypes, sys
pid = int(sys.argv[1])
at = [int(line.split("-")[0], 16) + 72 for line in open(f"/proc/{pid}/maps") if "[heap]" in line][0]
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
data = ctypes.create_string_buffer(b"poked")
here, there = Vector(ctypes.addressof(data), 5), Vector(at, 5)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.process_vm_writev(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) == 5
"""
HOLDER = """
import ctypes, mmap, os, pty, time
libc = ctypes.CDLL(None)
watch = libc.inotify_init()
libc.inotify_add_watch(watch, b"/tmp/watched", 0x100)
memory = os.memfd_create("shared")
os.ftruncate(memory, 4096)
shared = mmap.mmap(memory, 4096)
shared[0] = 1
gone = open("/tmp/gone", "w+"); gone.write("abc"); gone.flush(); os.unlink("/tmp/gone")
main, other = pty.openpty()
pipe = os.pipe()
open("/tmp/ready", "w").write(f"{gone.fileno()} {memory} {os.ttyname(other)} {pipe[0]} {watch}")
time.sleep(100000)
"""
SHARE = """
import mmap, os, sys
pid, number = sys.argv[1:]
file = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR)
mmap.mmap(file, 4096)[100] ^= 1
"""
FLAGS = "import fcntl, sys; fcntl.fcntl(int(sys.argv[1]), 4, fcntl.fcntl(int(sys.argv[1]), 3) ^ 2048)"
PIPE_SIZE = "import fcntl, os, sys; fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), 1031, 1 << 16 << int(sys.argv[2]))"
SEMAPHORE = """
import ctypes
libc = ctypes.CDLL(None)
class Value(ctypes.Union):
    _fields_ = [("value", ctypes.c_int)]
id = libc.semget(77, 1, 0o1600)
libc.semctl(id, 0, 16, ctypes.c_int(libc.semctl(id, 0, 12) + 1))
"""
ADD_WATCH = """
import ctypes, os, sys
pid, number, path, mask = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
instance = libc.syscall(438, os.pidfd_open(int(pid)), int(number), 0)
if instance < 0: sys.exit(os.strerror(ctypes.get_errno()))
assert libc.inotify_add_watch(instance, path.encode(), int(mask, 16) | 0x20000000) > 0, os.strerror(ctypes.get_errno())
"""
MANY_WATCHES = """
import ctypes, os, time
libc = ctypes.CDLL(None)
watch = libc.inotify_init()
for number in range(1000):
    os.mkdir(f"/tmp/many/{number}")
    assert libc.inotify_add_watch(watch, f"/tmp/many/{number}".encode(), 0x100) > 0
open("/tmp/ready", "w").close()
time.sleep(100000)
"""
OPTION = "import socket; s = socket.socket(fileno=9); s.setsockopt(1, 9, 1 - s.getsockopt(1, 9)); s.detach()"

# What is changed without anybody's running, each twice or more; $J is a sleeping job, $H one with descriptors.
CHANGES = (
    "ionice -c 3 -p $J",
    "ionice -c 2 -n 7 -p $$",
    "chrt --batch -p 0 $J",
    "chrt --batch -p 0 $$",
    "chrt --reset-on-fork --other -p 0 $J",
    "renice -n 19 -p $J > /dev/null",
    "renice -n 19 -p $$ > /dev/null",
    "prlimit --pid $J --nofile=99:99",
    "prlimit --pid $$ --fsize=1000001:2000002",
    "echo 500 > /proc/$J/oom_score_adj",
    "echo 500 > /proc/$$/oom_score_adj",
    "echo 0x77 > /proc/$J/coredump_filter",
    "echo 0x77 > /proc/$$/coredump_filter",
    "echo other > /proc/$$/comm",
    "echo 123456 > /proc/$$/timerslack_ns",
    "echo 7 > /proc/$J/autogroup",
    "kill -STOP $J",
    "kill -USR2 $J",
    "stty -F /dev/pts/0 9600",
    "stty -F /dev/pts/0 ispeed 300 ospeed 300",
    "stty -F /dev/pts/0 -echo",
    "stty -F /dev/pts/0 cols 77",
    "chmod 600 /dev/pts/0",
    "exec 9> /tmp/lock",
    "flock 9",
    "flock -u 9",
    "flock -s 9",
    "python3 /tmp/lease.py",
    "exec 9>&-",
    "python3 /tmp/flags.py 0",
    "python3 /tmp/flags.py 0",
    "exec < /etc/passwd",
    "x=1; read -r x; x=1",
    "exec < /dev/tty",
    "exec 8<> /tmp/gone2; rm /tmp/gone2",
    "printf abc > /proc/$$/fd/8",
    "printf xyz > /proc/$$/fd/8",
    "exec 8>&-",
    "mkfifo /tmp/pipe; exec 7<> /tmp/pipe",
    "python3 /tmp/pipe_size.py /tmp/pipe 2",
    "printf xyz > /proc/$H/fd/$GONE",
    "printf xzz > /proc/$H/fd/$GONE",
    "python3 /tmp/share.py $H $MEMORY",
    "python3 /tmp/share.py $H $MEMORY",
    "python3 /tmp/pipe_size.py /proc/$H/fd/$PIPE 3",
    "stty -F $TTY -echo",
    "stty -F $TTY 4800",
    "stty -F $TTY rows 33",
    "python3 /tmp/add_watch.py $H $WATCH /etc 100",
    "python3 /tmp/add_watch.py $H $WATCH /etc 200",
    "touch /tmp/watched/x; rm /tmp/watched/x",
    "python3 /tmp/poke.py $J",
    "python3 /tmp/poke.py $J",
    "python3 /tmp/poke.py $H shared",
    "python3 /tmp/vector.py $J",
    "ipcmk -M 4096 > /dev/null",
    "python3 /tmp/semaphore.py",
    "python3 /tmp/semaphore.py",
    "python3 /tmp/semaphore.py",
)
LEASE = "import fcntl; fcntl.fcntl(9, 1024, fcntl.F_WRLCK)"
PROGRAMS = {
    "poke": POKE,
    "vector": VECTOR,
    "holder": HOLDER,
    "share": SHARE,
    "flags": FLAGS,
    "pipe_size": PIPE_SIZE,
    "semaphore": SEMAPHORE,
    "lease": LEASE,
    "option": OPTION,
    "add_watch": ADD_WATCH,
    "many_watches": MANY_WATCHES,
}


def prepared(sandbox: Sandbox) -> Sandbox:
    """Starts a sleeping job and one that holds things, and waits until nothing runs any more."""
    for name, program in PROGRAMS.items():
        sandbox.write_file(f"/tmp/{name}.py", program.encode())
    sh(sandbox, "cd /; mkdir /tmp/watched; python3 /tmp/holder.py & H=$!")
    eventually(lambda: sh(sandbox, "test ! -s /tmp/ready || echo there"))
    sh(sandbox, "read -r GONE MEMORY TTY PIPE WATCH < /tmp/ready; sleep 100000 & J=$!")
    eventually(lambda: "100000" in sh(sandbox, "ps -o args= -p $J"))
    eventually(lambda: still(sandbox, "ls / > /dev/null"))
    return sandbox


def change_made(sandbox: Sandbox, change: str) -> Outcome:
    """Runs a change, until the kernel takes it: of all processes of a machine, one changes an autogroup in 100 ms."""
    while (outcome := sandbox.run(change, timeout=60)).output.endswith(b"Resource temporarily unavailable\n"):
        time.sleep(0.05)
    return outcome


def test_changes_are_seen(sandbox: Sandbox) -> None:
    prepared(sandbox)
    unseen = []
    for change in CHANGES:
        before = sandbox.observe()
        outcome = change_made(sandbox, change)
        sh(sandbox, "true")
        if outcome.exit_code == 0 and sandbox.observe() == before:
            unseen.append(change)
        elif outcome.exit_code != 0:
            assert b"ermission" in outcome.output or b"ermitted" in outcome.output, (change, outcome)
    assert unseen == []


def test_each_of_many_watches_is_seen(sandbox: Sandbox) -> None:
    for name in ("add_watch", "many_watches"):
        sandbox.write_file(f"/tmp/{name}.py", PROGRAMS[name].encode())
    sh(sandbox, "mkdir /tmp/many; python3 /tmp/many_watches.py & until [ -e /tmp/ready ]; do sleep 0.05; done")
    eventually(lambda: still(sandbox))
    found = changed(sandbox, "python3 /tmp/add_watch.py $! 3 /tmp/many/0 200 2> /tmp/said")
    assert "processes" in found or sh(sandbox, "cat /tmp/said") == "Operation not permitted\n"  # on the backend local


def test_nothing_is_seen_where_nothing_changed(sandbox: Sandbox) -> None:
    """All of it is there, and merely lives: what was looked at stays as it was."""
    prepared(sandbox)
    sh(sandbox, "exec 9> /tmp/lock; flock 9; exec 8<> /tmp/gone2; rm /tmp/gone2; mkfifo /tmp/pipe; exec 7<> /tmp/pipe")
    sh(sandbox, "ionice -c 3 -p $J; echo 500 > /proc/$J/oom_score_adj; ipcmk -M 4096 > /dev/null; stty -F $TTY 4800")
    eventually(lambda: still(sandbox))
    assert changed(sandbox, "ls / > /dev/null; cat /proc/$J/status > /dev/null") == set()
    assert changed(sandbox, "stty -F $TTY > /dev/null; ls -l /proc/$H/fd > /dev/null") == set()


def test_a_socket_that_calls_inherit(sandbox: Sandbox) -> None:
    """Its options are the open socket's, and so the shell's."""
    prepared(sandbox)
    sh(sandbox, "exec 9<> /dev/udp/127.0.0.1/9100")
    assert changed(sandbox, "python3 /tmp/option.py") != set()


# What changes the shell or a job, and what tells of it afterwards. A fork says the same, or there is none.
KEPT = (
    ("ionice -c 3 -p $$", "ionice -p $$"),
    ("ionice -c 3 -p $J", "ionice -p $J"),
    ("chrt --batch -p 0 $$; chrt --idle -p 0 $J", "chrt -p $$; chrt -p $J"),
    ("chrt --reset-on-fork --other -p 0 $J", "chrt -p $J"),
    ("renice -n 19 -p $$ $J > /dev/null", "nice; ps -o ni= -p $J"),
    ("prlimit --pid $J --nofile=99:99", "prlimit --pid $J"),
    ("echo 500 > /proc/$J/oom_score_adj; echo 600 > /proc/$$/oom_score_adj", "cat /proc/{$$,$J}/oom_score_adj"),
    ("echo 0x77 > /proc/$J/coredump_filter", "cat /proc/$J/coredump_filter"),
    ("echo 0x77 > /proc/$$/coredump_filter", "cat /proc/$$/coredump_filter"),
    ("echo other > /proc/$$/comm", "cat /proc/$$/comm"),
    ("echo 7 > /proc/$$/autogroup", "sed 's/.*nice//' /proc/$$/autogroup"),
    ("echo 7 > /proc/self/loginuid", "cat /proc/self/loginuid"),
    ("echo 123456 > /proc/$$/timerslack_ns", "cat /proc/$BASHPID/timerslack_ns"),
    ("stty -F /dev/pts/0 9600 -echo cols 77", "stty -a < /dev/pts/0"),
    ("stty -F /dev/pts/0 ispeed 300 ospeed 1200", "stty -a < /dev/pts/0"),
    ("chmod 600 /dev/pts/0", "stat -c %a:%u:%g /dev/pts/0"),
    ("exec 9> /tmp/lock; flock 9", "flock -n /tmp/lock true; echo $?"),
    ("exec 9> /tmp/lock; flock -s 9", "flock -n /tmp/lock true; echo $?; flock -ns /tmp/lock true; echo $?"),
    ("exec 9> /tmp/lock; python3 /tmp/lease.py", "python3 -c 'import fcntl; print(fcntl.fcntl(9, 1025))'"),
    ("python3 /tmp/flags.py 0", "python3 -c 'import fcntl; print(fcntl.fcntl(0, 3) & 2048)'"),
    ("exec < /etc/passwd; read -r x", "read -r x; echo $x"),
    ("exec 8<> /tmp/gone2; rm /tmp/gone2; printf abc > /proc/$$/fd/8", "cat /proc/$$/fd/8"),
    ("mkfifo /tmp/pipe; exec 7<> /tmp/pipe; python3 /tmp/pipe_size.py /tmp/pipe 2", "python3 /tmp/size.py"),
    ("disown", "jobs"),
    ("getopts ab o -ab", "getopts ab o -ab; echo $o"),
    ("history -s one; history -s two; history -d 1", "history"),
    ("hash -p /bin/true ls; bind '\"\\C-xq\": abort'", "bind -p | grep -c 'xq.: abort'"),
    ("RANDOM=42; echo $RANDOM", "echo $RANDOM $RANDOM"),
    ("SECONDS=1000", "echo $((SECONDS / 100))"),
    ("enable -n test; complete -W 'a b' x; ulimit -Sn 99", "enable -n; complete -p; ulimit -n"),
)


@pytest.mark.needs_processes
@pytest.mark.parametrize(("change", "look"), KEPT, ids=[change for change, _ in KEPT])
def test_a_fork_has_it_too(lab: Lab, change: str, look: str) -> None:
    sandbox = lab.start()
    for name in ("flags", "lease", "pipe_size"):
        sandbox.write_file(f"/tmp/{name}.py", PROGRAMS[name].encode())
    sandbox.write_file("/tmp/size.py", b"import fcntl; print(fcntl.fcntl(7, 1032))")
    sh(sandbox, "cd /")
    job(sandbox, "sleep 100000")
    sh(sandbox, "J=$!")
    change_made(sandbox, change)
    try:
        fork = lab.fork_of(sandbox)
    except NotCheckpointable:
        return
    assert sh(fork, look) == sh(sandbox, look)


INHERITED = (
    "cd /proc/self; cat oom_score_adj coredump_filter loginuid limits; nice; ionice; chrt -p $$; taskset -p $$; umask; "
    "grep -E '^(SigIgn|ShdPnd|Cap|NoNew|Seccomp|Speculation|Groups|Uid|Gid|Umask|THP)' status; "
    "cut -d/ -f2- cgroup; sed 's/.*nice//' autogroup; cat timerslack_ns /proc/1/oom_score_adj /proc/1/coredump_filter; "
    "readlink root exe; cat personality uid_map gid_map setgroups; env | sort"
)
"""Commands that print what a process has of the one that made it.

Signals that it catches are not among it: no program inherits them, and bash catches SIGINT only once it waits.
"""


SEEN = "nice; ionice; chrt -p 1 | sed 's/.*: //'; umask; grep -E '^Sig(Ign|Blk)' /proc/self/status; "
SEEN += "cat /proc/1/oom_score_adj; stat -c '%A %u:%g %n' / /run /run/* /dev /dev/* /proc /sys /tmp"


@contextlib.contextmanager
def started_unusually() -> Iterator[None]:
    """With another niceness, in the background with signals ignored."""
    ignored = [(number, signal.signal(number, signal.SIG_IGN)) for number in (signal.SIGQUIT, signal.SIGUSR1)]
    mask, niceness = os.umask(0o77), os.getpriority(os.PRIO_PROCESS, 0)
    adjusted = Path("/proc/self/oom_score_adj").read_text()
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 7)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        Path("/proc/self/oom_score_adj").write_text("300")
        yield
    finally:
        Path("/proc/self/oom_score_adj").write_text(adjusted)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
        os.umask(mask)
        for number, before in ignored:
            signal.signal(number, before)


def test_it_is_the_same_however_tvsnap_was_started(lab: Lab) -> None:
    usual = sh(lab.start(), SEEN)
    with started_unusually():
        assert sh(lab.start(), SEEN) == usual


@pytest.mark.needs_processes
def test_so_it_is_in_forks(lab: Lab) -> None:
    sandbox = lab.start()
    job(sandbox, "sleep 100000")
    usual = sh(sandbox, SEEN)
    with started_unusually():
        assert sh(lab.fork_of(sandbox), SEEN) == usual


@pytest.mark.needs_processes
def test_new_processes_inherit_the_same_in_a_fork(lab: Lab) -> None:
    """From the shell, and from PID 1, which makes those of `exec`."""
    sandbox = lab.start()
    job(sandbox, "sleep 100000")
    fork = lab.fork_of(sandbox)
    assert sh(fork, f"({INHERITED})").splitlines() == sh(sandbox, f"({INHERITED})").splitlines()
    there, here = (one.exec(INHERITED, timeout=60).output.decode() for one in (fork, sandbox))
    assert there.splitlines() == here.splitlines()


NOT_THERE = """
import ctypes, errno, fcntl, os
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments): return errno.errorcode.get(ctypes.get_errno()) if libc.syscall(*arguments) == -1 else "done"
pkey_alloc = {"x86_64": 330, "aarch64": 289}[os.uname().machine]
print(call(438, os.pidfd_open(os.getppid()), 0, 0), call(pkey_alloc, 0, 0), call(462, 4096, 4096, 0))
try: fcntl.fcntl(os.open("/tmp", os.O_RDONLY), 1026, 4)
except OSError as error: print(errno.errorcode[error.errno])
"""


def test_what_no_snapshot_shows_or_keeps_is_not_there(local_lab: Lab) -> None:
    """Descriptors of others (pidfd_getfd), keys that protect memory, sealed memory, directories watched by signals."""
    sandbox = local_lab.start()
    sandbox.write_file("/tmp/calls.py", NOT_THERE.encode())
    assert sh(sandbox, "python3 /tmp/calls.py") == "EPERM ENOSPC ENOSYS\nEINVAL\n"


MOMENT = """
import ctypes, os, struct, time
libc = ctypes.CDLL(None)
due = time.clock_gettime(time.CLOCK_MONOTONIC) + 1000
at = struct.pack("qq", int(due), int(due % 1 * 1e9))
once, again, rung = (libc.timerfd_create(1, 0) for _ in range(3))
libc.timerfd_settime(once, 1, struct.pack("qq", 0, 0) + at, None)
libc.timerfd_settime(again, 1, struct.pack("qq", 500, 0) + at, None)
libc.timerfd_settime(rung, 1, struct.pack("4q", 1000, 0, 1, 0), None)
time.sleep(0.1)
os.mkfifo("/tmp/ask")
while True:
    open("/tmp/ask").read()
    for timer in (once, again):
        buffer, least = ctypes.create_string_buffer(32), 1.0
        for _ in range(20):  # with nothing between the two clocks, in one of them
            before = time.clock_gettime(time.CLOCK_MONOTONIC)
            libc.timerfd_gettime(timer, buffer)
            took = time.clock_gettime(time.CLOCK_MONOTONIC) - before
            interval, _, left, rest = struct.unpack("4q", buffer.raw)
            if took < least:
                least, off = took, left + rest / 1e9 + before - due
        print(interval, off, flush=True)
    print(struct.unpack("Q", os.read(rung, 8))[0] > 0, 0, flush=True)
"""


def test_a_timer_that_rings_at_a_moment(local_lab: Lab) -> None:
    """By the clock of its process, in each fork as in the original, which goes on; what it has rung is kept."""
    sandbox = local_lab.start()
    sandbox.write_file("/tmp/moment.py", MOMENT.encode())
    sh(sandbox, "python3 /tmp/moment.py > /tmp/rung &")
    eventually(lambda: sh(sandbox, "test -p /tmp/ask && echo there") == "there\n")
    first = local_lab.fork_of(sandbox)
    time.sleep(0.3)
    for one in (first, local_lab.fork_of(sandbox), local_lab.fork_of(first), sandbox):
        sh(one, "echo > /tmp/ask")
        sh(one, "until [ $(wc -l < /tmp/rung) = 3 ]; do sleep 0.05; done")
        said = [line.split() for line in sh(one, "cat /tmp/rung").splitlines()]
        assert [interval for interval, _ in said] == ["0", "500", "True"]
        assert all(-0.02 < float(off) < LATE_S for _, off in said), said  # never early


RINGS = """
import ctypes, os, struct, time
libc = ctypes.CDLL(None)
timer = libc.timerfd_create(1, 0)
libc.timerfd_settime(timer, 0, struct.pack("4q", 0, 10**8, 0, 10**8), None)
time.sleep(2.05)
os.mkfifo("/tmp/ask")
open("/tmp/ask").read()
print(struct.unpack("Q", os.read(timer, 8))[0], flush=True)
"""


def test_how_often_a_timer_has_rung(local_lab: Lab) -> None:
    sandbox = local_lab.start()
    sandbox.write_file("/tmp/rings.py", RINGS.encode())
    sh(sandbox, "python3 /tmp/rings.py > /tmp/rung &")
    eventually(lambda: sh(sandbox, "test -p /tmp/ask && echo there") == "there\n")
    for one in (local_lab.fork_of(sandbox), sandbox):
        sh(one, "echo > /tmp/ask; wait")
        assert int(sh(one, "cat /tmp/rung")) >= 20
