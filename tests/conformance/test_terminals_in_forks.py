"""Terminals of programs beside the shell's, in forks: /dev/tty, what waits where nobody has them open, packet mode.

The local backend alone: an engine's CRIU has no additions.
"""

from __future__ import annotations

import pytest

from tests.conformance.helpers import Lab, eventually, sh, usable
from tests.conformance.jobs import REPORTING, report_of, start
from tvsnap.model.errors import NotCheckpointable

TERMINALS = """
import pty, termios
def flags(pid, number): return open(f"/proc/{pid}/fdinfo/{number}").read().split()[3]
def name_of(m): return '/dev/pts/%d' % struct.unpack('i', fcntl.ioctl(m, 0x80045430, bytes(4)))
def hung_up(m):
    look = select.poll()
    look.register(m, select.POLLIN)
    return bool(dict(look.poll(0)).get(m, 0) & select.POLLHUP)
def ready(m):
    return bool(select.select([m], [], [], 0)[0])
def all_of(m):
    "What can be read, at once or a moment later, and how that ends."
    data = b""
    os.set_blocking(m, False)
    while not isinstance(part := attempt(os.read, m, 4096), str): data += part
    return data, part
def packets(m, on): fcntl.ioctl(m, termios.TIOCPKT, struct.pack("i", on))
def in_packets(m): return struct.unpack("i", fcntl.ioctl(m, 0x80045438, bytes(4)))[0]
def shown(m, wanted):
    data = b""
    while wanted not in data: data += os.read(m, 4096)
    return data
def spawn(work):
    pid, m = pty.fork()
    if pid: return pid, m
    work()
    os._exit(0)
"""

# Name -> what sets it up, and what a report of it is, in the original and in a fork.
KEPT = {
    "dev tty": (
        "t = os.open('/dev/tty', os.O_RDWR); u = os.open('/dev/tty', os.O_WRONLY | os.O_NONBLOCK); "
        "c = child(lambda: None)",
        "[(os.readlink(f'/proc/{p}/fd/{n}'), flags(p, n)) for p in (ME, c) for n in (t, u)], os.fstat(t).st_rdev, "
        "os.fstat(t).st_uid, [fcntl.ioctl(n, 0x80045432, bytes(4)) for n in (t, u)], os.tcgetpgrp(t) > 0, "
        "termios.tcgetattr(t), os.ttyname(0), os.open('/dev/tty', os.O_RDWR) > 0",
    ),
    "dev tty of another session": (
        "def talk():\n"
        " t, u = os.open('/dev/tty', os.O_RDWR), os.open('/dev/tty', os.O_RDONLY | os.O_NONBLOCK)\n"
        " [os.close(n) for n in (0, 1, 2)]; os.write(t, b'begin')\n"
        " while line := os.read(t, 99): os.write(t, line + str(os.tcgetpgrp(u) == os.getpid()).encode() + b'.')\n"
        "p, m = spawn(talk); until(lambda: ready(m)); time.sleep(0.05)",
        "os.write(m, b'line\\n'), shown(m, b'.'), os.write(m, b'\\3'), os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]), "
        "hung_up(m)",
    ),
    "what waits at dev tty": (
        "def hold():\n t = os.open('/dev/tty', os.O_RDWR); [os.close(n) for n in (0, 1, 2)]; os.write(t, b'done\\n')\n"
        " signal.signal(signal.SIGUSR2, lambda *_: os.write(t, b'<' + os.read(t, 99) + os.read(t, 99) + b'>'))\n"
        " while True: time.sleep(100)\n"
        "p, m = spawn(hold); until(lambda: ready(m)); time.sleep(0.05); os.write(m, b'one\\nunfini'); time.sleep(0.05)",
        "os.write(m, b'shed\\n'), os.kill(p, 12), shown(m, b'>'), hung_up(m)",
    ),
    "dev tty that was passed on": (
        "a, b = socket.socketpair(); p, m = spawn(lambda: (socket.send_fds(a, [b'x'], [os.open('/dev/tty', 2)]), "
        "time.sleep(1000))); t = socket.recv_fds(b, 9, 1)[1][0]",
        "os.readlink(f'/proc/self/fd/{t}'), os.write(t, b'hello'), os.read(m, 99), os.kill(p, 9), os.waitpid(p, 0)[1], "
        "hung_up(m), os.write(t, b'more'), os.read(m, 99)",
    ),
    "last words of a program": (
        "p, m = spawn(lambda: os.write(1, b'last words\\n')); until(lambda: hung_up(m) and state(p) == 'Z')",
        "hung_up(m), os.read(m, 99), attempt(os.read, m, 99), attempt(os.read, m, 99), os.waitpid(p, 0)[1]",
    ),
    "many last words": (
        "p, m = spawn(lambda: (os.set_blocking(1, False), fill_terminal(), None)); until(lambda: hung_up(m))",
        "len(data := all_of(m)[0]), [data.count(b) for b in b'!~'], data[-50:]",
    ),
    "a terminal of a program without a word": (
        "p, m = spawn(lambda: None); until(lambda: hung_up(m))",
        "hung_up(m), attempt(os.read, m, 99)",
    ),
    "typed for a program that has ended": (
        "p, m = spawn(lambda: None); until(lambda: hung_up(m)); os.write(m, b'typed\\nunfi'); time.sleep(0.05)",
        "all_of(m), (s := os.open(name_of(m), os.O_RDWR)), os.read(s, 99), os.write(m, b'nished\\n'), os.read(s, 99)",
    ),
    "a terminal that nobody has opened": (
        "m, n = [os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY) for _ in range(2)]; libc.unlockpt(m)",
        "[(hung_up(x), all_of(x)) for x in (m, n)], attempt(os.open, name_of(n), 2), "
        "os.write(os.open(name_of(m), os.O_RDWR | os.O_NOCTTY), b'x'), all_of(m)",
    ),
    "packets": (
        "m, s = os.openpty(); packets(m, 1); os.write(s, b'printed\\n'); os.write(m, b'typed\\n'); time.sleep(0.05)",
        "in_packets(m), os.read(m, 99), os.read(s, 99), termios.tcflow(s, termios.TCOOFF), os.read(m, 9), "
        "termios.tcflow(s, termios.TCOON), os.read(m, 9)",
    ),
    "packets of a program that has ended": (
        "p, m = spawn(lambda: os.write(1, b'last words\\n')); packets(m, 1); until(lambda: hung_up(m)); "
        "until(lambda: ready(m))",
        "in_packets(m), os.read(m, 99), attempt(os.read, m, 99)",
    ),
}
FILL = """
def fill_terminal():
    data = bytes(33 + n % 90 for n in range(100))
    while not isinstance(attempt(os.write, 1, data), str): pass
"""

# Name -> what sets it up, and what is said of it.
REFUSED = {
    "a status of packet mode": (
        "m, s = os.openpty(); packets(m, 1); termios.tcflush(s, termios.TCIFLUSH)",
        "has a terminal in packet mode with a status that is not read yet",
    ),
    "data at a terminal that nobody has opened": (
        "m = os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY); os.write(m, b'typed\\n'); until(lambda: ready(m))",
        "has a terminal with data that waits there, and of which nobody has opened the slave",
    ),
    "a terminal of one program alone": (
        "m, s = os.openpty(); fcntl.ioctl(s, 0x540c)",
        "has a terminal that nobody else may open",
    ),
    "a terminal that was left": (
        "p, m = spawn(lambda: (signal.signal(1, signal.SIG_IGN), os.open('/dev/tty', 2), os.write(1, b'x'), "
        "time.sleep(1000))); until(lambda: ready(m)); os.close(m)",
        "has /dev/tty open of a terminal that has hung up",
    ),
}


def test_terminals_are_the_same_in_a_fork(local_lab: Lab) -> None:
    sandbox = local_lab.start()
    for name, (program, report) in KEPT.items():
        start(sandbox, name, f"{TERMINALS}{FILL}\n{program}\ndef report(): return {report}\n{REPORTING}")
    forks = [local_lab.fork_of(sandbox)]
    forks.append(local_lab.fork_of(forks[0]))
    found = {name: [report_of(one, name) for one in (sandbox, *forks)] for name in KEPT}
    assert {name: said for name, said in found.items() if len(set(said)) > 1} == {}
    assert [said for said in found.values() if "Error" in said[0]] == []
    usable(forks[1])


def test_terminals_that_are_refused(local_lab: Lab) -> None:
    sandbox = local_lab.start()
    for name, (program, reason) in REFUSED.items():
        start(sandbox, name, f"{TERMINALS}\n{program}")
        with pytest.raises(NotCheckpointable, match=reason):
            local_lab.checkpoint(sandbox)
        sh(sandbox, "pkill -9 python3; rm -r /tmp/jobs")
        eventually(lambda: "python3" not in sh(sandbox, "ps -e -o comm="))
    usable(local_lab.fork_of(sandbox))


LOST = {
    "last words of a program": "has a terminal whose programs have ended",
    "packets": "has a terminal in packet mode",
}


def test_terminals_that_criu_would_lose(local_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CRIU of the distribution's forgets what waits there."""
    sandbox = local_lab.start()
    monkeypatch.setattr("tvsnap.sandboxes.criu.binary.additions", lambda _: {"owners", "terminals"})
    for name, reason in LOST.items():
        start(sandbox, name, f"{TERMINALS}\n{KEPT[name][0]}")
        with pytest.raises(NotCheckpointable, match=rf"{reason} \(descriptor \d+\)"):
            local_lab.checkpoint(sandbox)
        sh(sandbox, "pkill -9 python3; rm -r /tmp/jobs")
        eventually(lambda: "python3" not in sh(sandbox, "ps -e -o comm="))
