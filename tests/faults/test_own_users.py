"""What the kernel counts for a user of the machine: no sandbox uses up what another has of it.

Each limit is reached in one sandbox, in earnest, and then tried in another.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.helpers import Lab, eventually, sh
from tests.small_image import build_small_image
from tvsnap import Limits
from tvsnap.images import UID_BASE, Image
from tvsnap.sandboxes.local.sandbox import LocalSandbox

USE = """
import ctypes, os, resource, select, signal, socket, sys, fcntl

resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
libc = ctypes.CDLL(None, use_errno=True)
kept = []

def pipes():
    "Buffers of pipes: a new pipe has less room where its user has used up what there is for all of them."
    kept.append(os.pipe())
    return fcntl.fcntl(kept[-1][0], 1032) == 65536

def flight():
    "Descriptors that were sent and not received."
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    kept.append((a, b))
    try:
        socket.send_fds(a, [b"x"], [0] * 250)
    except OSError:
        return False
    return True

def inotify():
    "Instances of inotify."
    return libc.inotify_init() >= 0

def signals():
    "Signals that are pending, each of which is kept."
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    return libc.sigqueue(os.getpid(), signal.SIGRTMIN, 0) == 0

def terminals():
    "Pseudoterminals, of which a sandbox has so many."
    try:
        kept.append(os.openpty())
    except OSError:
        return False
    return True

use, most = globals()[sys.argv[1]], int(sys.argv[2])
count = 0
while count < most and use():
    count += 1
print(count, flush=True)
if most > 10:
    signal.pause()
"""
LIMITS = {"pipes": 9000, "flight": 1000, "inotify": 9000, "signals": 100_000, "terminals": 9000}
"""What is tried, and how often at most."""


def user_of(sandbox: object) -> int:
    """Returns the user of this machine that is root in a sandbox."""
    assert isinstance(sandbox, LocalSandbox)
    return int(Path(f"/proc/{sandbox.init}/status").read_text().partition("Uid:\t")[2].split()[0])


def test_no_two_have_a_user_in_common_and_none_can_tell(lab: Lab) -> None:
    one, other = lab.start(), lab.start()
    look = "cat /proc/self/[ug]id_map /proc/mounts; id; stat -c '%u %g %n' / /etc/passwd /dev/pts /tmp/f; ls -l /dev"
    sh(one, "sleep 1000 > /dev/null & touch /tmp/f; chown 1000:1001 /tmp/f")
    sh(other, "sleep 1000 > /dev/null & touch /tmp/f; chown 1000:1001 /tmp/f")
    fork = lab.fork_of(one)
    assert len({user_of(one), user_of(other), user_of(fork), UID_BASE}) == 4
    seen = sh(one, look)
    assert f"0 {UID_BASE} 65536" in " ".join(seen.split())
    assert seen == sh(other, look)
    assert sh(fork, look) == seen


@pytest.mark.parametrize("what", LIMITS)
def test_what_one_uses_up_others_have(lab: Lab, what: str) -> None:
    one, other = lab.start(), lab.start()
    for sandbox in (one, other):
        sandbox.write_file("/tmp/use.py", USE.encode())
    sh(other, "x=1; sleep 1000 > /dev/null &")
    snapshot = lab.checkpoint(other)
    sh(one, f"python3 /tmp/use.py {what} {LIMITS[what]} > /tmp/log 2>&1 &")
    used = eventually(lambda: sh(one, "cat /tmp/log 2> /dev/null"), timeout=60).strip()
    assert 50 < int(used) < LIMITS[what], "a limit is reached"
    assert int(sh(one, f"python3 /tmp/use.py {what} 5")) < 3, "it is that of a user"  # other signals come and go
    for sandbox in (other, lab.start(), lab.fork(snapshot), lab.fork_of(other)):
        sandbox.write_file("/tmp/use.py", USE.encode())
        assert sh(sandbox, f"python3 /tmp/use.py {what} 5") == "5\n"


FILL_BUFFERS = """
import socket, time
server, kept = socket.create_server(("127.0.0.1", 0)), []
for _ in range(300):
    client = socket.create_connection(server.getsockname(), timeout=60)
    kept += [client, server.accept()[0]]
    client.setblocking(False)
    try:
        while client.send(bytes(100_000)): pass
    except OSError:
        pass
print("full", flush=True)
time.sleep(1000)
"""


def test_buffers_of_sockets_stay_within_the_limit_of_memory(lab: Lab) -> None:
    """300 connections would hold 1.5 GB, and what TCP may take is counted for the whole machine."""
    limit = 256 << 20
    sandbox, neighbour = lab.start(Limits(memory=limit)), lab.start()
    before = bytes_in_tcp()
    sandbox.write_file("/tmp/fill.py", FILL_BUFFERS.encode())
    sh(sandbox, "python3 /tmp/fill.py > /tmp/log 2>&1 &")
    eventually(lambda: sh(sandbox, "cat /tmp/log; pgrep -c python3") in ("full\n1\n", "0\n"), timeout=120)
    assert bytes_in_tcp() - before < limit
    assert sh(neighbour, "python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 0)); print(1)'") == "1\n"


def bytes_in_tcp() -> int:
    """Returns what all TCP connections of this machine have in buffers."""
    found = re.search(r"^TCP:.* mem (\d+)", Path("/proc/net/sockstat").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) * os.sysconf("SC_PAGE_SIZE")


ELSEWHERE = """
import sys
from pathlib import Path
from tests.conformance.helpers import Lab, sh
from tests.conformance.targets import make_local
from tests.faults.test_own_users import user_of
from tvsnap.images import ImageStore

home = Path(sys.argv[1])
backend = make_local(home)
lab = Lab(backend, ImageStore(home).get("small"))
sandbox = lab.start()
sh(sandbox, "x=5; touch /f; chown 33 /f; sleep 1000 &")
for each in (sandbox, lab.start(), lab.fork_of(sandbox)):
    print(user_of(each), sh(each, "echo $x $(stat -c %u / /f 2>/dev/null); cat /proc/self/uid_map").split())
lab.close()
backend.close()
"""


def test_a_file_system_that_cannot_show_others_as_owners(terminal_image: Image, tmp_path: Path) -> None:
    """Here a ramfs: all sandboxes have the same users then, and else all is as it is."""
    home = tmp_path / "home"
    home.mkdir()
    build_small_image(terminal_image, home)
    (home / "images").rename(tmp_path / "images")
    (home / "images").mkdir()
    mount = 'mount -t ramfs ramfs "$1/images" && cp -a "$0/." "$1/images" && shift && exec "$@"'
    command = [sys.executable, "-c", ELSEWHERE]
    run = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, tmp_path / "images", home, *command, home],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    outside, seen = zip(*(line.split(maxsplit=1) for line in run.stdout.splitlines()), strict=True)
    assert outside == (str(UID_BASE),) * 3
    own = f"'0', '{UID_BASE}', '65536'"
    assert seen == (f"['5', '0', '33', {own}]", f"['0', {own}]", f"['5', '0', '33', {own}]")


def test_more_sandboxes_than_there_are_ranges(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond share the users to whom files on disk belong."""
    monkeypatch.setattr("tvsnap.sandboxes.local.id_ranges.IdRanges.take", lambda _: None)
    sandbox = lab.start()
    sh(sandbox, "x=5; sleep 1000 &")
    fork = lab.fork_of(sandbox)
    assert {user_of(sandbox), user_of(fork)} == {UID_BASE}
    monkeypatch.undo()
    again = lab.fork_of(fork)
    assert user_of(again) != UID_BASE
    assert sh(again, "echo $x; pgrep -c sleep") == "5\n1\n"
