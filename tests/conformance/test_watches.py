"""What programs watch with inotify, they watch in forks, under the same numbers; of snapshots they are not told."""

from __future__ import annotations

import pytest

from tests.conformance.helpers import Lab, eventually, sh, still
from tvsnap.model.errors import NotRestorable
from tvsnap.sandboxes.protocol import Sandbox
from tvsnap.sandboxes.repairs import watches

WATCHER = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
root, *wanted = sys.argv[1:]
os.chroot(root)
watch = libc.inotify_init()
for word in wanted:
    mask, _, path = word.partition(":")
    assert libc.inotify_add_watch(watch, path.encode(), int(mask, 16)) > 0, path
log = open("/home/log", "w", buffering=1)
log.write("watching\\n")
while True:
    data = os.read(watch, 65536)
    while data:
        number, mask, cookie, length = struct.unpack_from("iIII", data)
        log.write(f"{number} {mask:x} {data[16:16 + length].rstrip(bytes(1)).decode()}\\n")
        data = data[16 + length:]
"""
ALL = "fff"


def watcher(sandbox: Sandbox, root: str, *wanted: str) -> None:
    """Starts a job that logs what it is told, and waits until it watches.

    Args:
        sandbox: in which it runs.
        root: of its files; the log is below.
        wanted: masks and paths.
    """
    sandbox.write_file("/tmp/watcher.py", WATCHER.encode())
    sh(
        sandbox,
        f"python3 /tmp/watcher.py {root} {' '.join(wanted)} & until [ -s {root}/home/log ]; do sleep 0.05; done",
    )


def told(sandbox: Sandbox, command: str, last: str, log: str = "/home/log") -> list[str]:
    """Runs a command; returns all that a watcher was told, once this ends with `last`."""
    sh(sandbox, command)
    return eventually(lambda: log_of(sandbox, log) if log_of(sandbox, log)[-1:] == [last] else [])


def log_of(sandbox: Sandbox, log: str) -> list[str]:
    return sh(sandbox, f'x=$(<{log}); echo "$x"').splitlines()  # no program is started, which others watch


def test_events_in_forks(local_lab: Lab) -> None:
    """Of files and directories of the image and of the sandbox, in itself and in forks: the same in all."""
    sandbox = local_lab.start()
    sh(sandbox, "mkdir -p /srv/dir /srv/moved; echo > /srv/file; mv /srv/moved /srv/here; mv /etc/shadow /srv/shadow")
    watcher(
        sandbox, "/", f"{ALL}:/srv/dir", "2:/srv/file", "100:/etc", "2:/etc/passwd", f"{ALL}:/srv/here", "2:/srv/shadow"
    )
    steps = (
        "echo x > /srv/dir/new; echo >> /srv/file; echo > /etc/new; echo >> /etc/passwd; echo >> /srv/shadow; "
        "rm /srv/dir/new; rmdir /srv/here"
    )
    snapshot = local_lab.checkpoint(sandbox)
    fork = local_lab.fork(snapshot)
    again = local_lab.fork_of(fork)
    logs = [told(one, steps, "5 8000 ") for one in (again, fork, sandbox)]
    assert logs[0] == logs[1] == logs[2]
    for event in ("1 100 new", "1 2 new", "2 2 ", "3 100 new", "4 2 ", "6 2 ", "1 200 new", "5 400 "):
        assert event in logs[0]
    assert "5 8000 " in told(local_lab.fork_of(fork), "echo >> /srv/file", "2 2 ")


def test_nobody_is_told_of_a_snapshot(local_lab: Lab) -> None:
    """CRIU looks at the root directory, at programs and libraries, and at what processes have open."""
    sandbox = local_lab.start()
    places = "/ /root /etc /etc/passwd /usr/bin /bin/bash /usr/lib /usr/lib/x86_64-linux-gnu /usr/lib/python3.11"
    watcher(sandbox, "/", *(f"{ALL}:{place}" for place in places.split()))
    sh(sandbox, "cd /etc; exec 9< /etc/passwd")
    before = told(sandbox, ": > /root/last", "2 8 last")
    snapshot = local_lab.checkpoint(sandbox)
    fork = local_lab.fork(snapshot)
    for one in (fork, sandbox):
        later = told(one, ": > /root/next", "2 8 next")
        assert later == [*before, "2 100 next", "2 20 next", "2 8 next"]


def test_watches_in_another_root(local_lab: Lab) -> None:
    """As those of a service."""
    sandbox = local_lab.start()
    sh(sandbox, "mkdir -p /srv/root/etc /srv/root/home")
    watcher(sandbox, "/srv/root", f"{ALL}:/etc")
    fork = local_lab.fork_of(sandbox)
    assert told(fork, "mkdir /srv/root/etc/new", "1 40000100 new", "/srv/root/home/log")


def test_a_state_that_differs_in_what_is_watched(local_lab: Lab) -> None:
    """Nothing that was told, or is to be, is lost: the sandbox that goes on is what it was, too."""
    sandbox = local_lab.start()
    watcher(sandbox, "/", f"{ALL}:/srv")
    eventually(lambda: still(sandbox))
    before = sh(sandbox, "cat /proc/$!/fdinfo/3")
    local_lab.checkpoint(sandbox)
    assert sh(sandbox, "cat /proc/$!/fdinfo/3") == before
    eventually(lambda: still(sandbox))


def test_a_fork_that_cannot_watch_the_same(local_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = local_lab.start()
    watcher(sandbox, "/", f"{ALL}:/srv")
    snapshot = local_lab.checkpoint(sandbox)
    elsewhere = watches.Instance((2, 0), (watches.Watch(1, 2, "/srv"),), 2)
    monkeypatch.setattr(watches.FILE, "read", lambda _: [elsewhere])
    with pytest.raises(NotRestorable, match="watches of inotify could not be brought back in a fork"):
        local_lab.fork(snapshot)
