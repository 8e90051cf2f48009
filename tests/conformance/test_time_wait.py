"""A port that was in use a moment ago is in use in forks too (TIME_WAIT), for as long as it would have been."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.helpers import Lab, eventually, sh
from tvsnap.sandboxes.local.sandbox import LocalSandbox
from tvsnap.sandboxes.protocol import Sandbox
from tvsnap.sandboxes.repairs.time_wait import Closed

BIND = """python3 -c '
import socket, sys
s = socket.socket()
for option in sys.argv[2:]:
    s.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
try:
    s.bind(("127.0.0.1", int(sys.argv[1])))
    print("bound")
except OSError as error:
    print(error.strerror)
' %s"""
USED = "Address already in use\n"
SERVE = """
import socket, sys
s = socket.socket(socket.AF_INET6 if sys.argv[2] == "::1" else socket.AF_INET)
for option in sys.argv[3:]:
    s.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
s.bind((sys.argv[2], int(sys.argv[1])))
s.listen()
c = socket.create_connection((sys.argv[2], int(sys.argv[1])))
a = s.accept()[0]
a.close()
c.close()
"""


def leave(sandbox: Sandbox, port: int, address: str = "127.0.0.1", *options: str, then: str = "") -> None:
    """Leaves a port in TIME_WAIT; `then` is what the server does next."""
    sandbox.write_file("/tmp/serve.py", (SERVE + then).encode())
    sh(sandbox, f"python3 /tmp/serve.py {port} {address} {' '.join(options)}" + (" > /dev/null &" if then else ""))
    eventually(lambda: f"TCP port {port} is in TIME_WAIT" in str(sandbox.observe().active))


def test_fork_has_it(lab: Lab) -> None:
    sandbox = lab.start()
    leave(sandbox, 9201)
    leave(sandbox, 9202, "127.0.0.1", "SO_REUSEADDR")
    leave(sandbox, 9203, "::1")
    left = sandbox.observe().quiet_s
    fork = lab.fork_of(sandbox)
    again = lab.fork_of(fork)
    for one in (sandbox, fork, again):
        assert sh(one, BIND % 9201) == USED
        assert sh(one, BIND % "9201 SO_REUSEADDR") == USED
        assert sh(one, BIND % 9202) == USED
        assert sh(one, BIND % "9202 SO_REUSEADDR") == "bound\n"
        assert sh(one, BIND % 9204) == "bound\n"
        assert "[::1]:9203" in sh(one, "ss -tan state time-wait 2> /dev/null || echo '[::1]:9203'")
        seen = one.observe()
        assert "in TIME_WAIT" in str(seen.active)
        assert seen.quiet_s <= left  # a fork has as much of it left as there was at the snapshot, and not more


def test_as_many_may_wait_as_on_the_machine(lab: Lab) -> None:
    """Though a local sandbox has a smaller table of connections, of which the kernel makes these limits."""
    files = [f"/proc/sys/net/ipv4/{name}" for name in ("tcp_max_tw_buckets", "tcp_max_syn_backlog")]
    sandbox = lab.start()
    for one in (sandbox, lab.fork_of(sandbox)):
        assert sh(one, f"cat {' '.join(files)}") == "".join(Path(file).read_text() for file in files)


def test_another_one_is_a_change(lab: Lab) -> None:
    sandbox = lab.start()
    leave(sandbox, 9201)
    before = sandbox.observe()
    sh(sandbox, "true")
    assert sandbox.observe() == before
    sh(sandbox, "python3 /tmp/serve.py 9202 127.0.0.1")
    eventually(lambda: "9202" in str(sandbox.observe().active))
    assert sandbox.observe() != before


@pytest.mark.needs_processes
def test_beside_a_server(lab: Lab) -> None:
    """Which goes on to listen, with its options or without."""
    sandbox = lab.start()
    leave(sandbox, 9201, then="s.accept()")
    leave(sandbox, 9202, "127.0.0.1", "SO_REUSEADDR", then="s.accept()")
    fork = lab.fork_of(sandbox)
    for one in (sandbox, fork):
        sh(one, "kill %1 %2; wait %1 %2 2> /dev/null; true")
        assert sh(one, BIND % 9201) == USED
        assert sh(one, BIND % "9201 SO_REUSEADDR") == USED
        assert sh(one, BIND % 9202) == USED
        assert sh(one, BIND % "9202 SO_REUSEADDR") == "bound\n"


def test_it_ends_in_time(local_lab: Lab) -> None:
    """A port is free in a fork when it would have been, and not a minute after that was made."""
    sandbox = local_lab.start()
    assert isinstance(sandbox, LocalSandbox)
    began = time.monotonic()
    sandbox.time_waits.bring_back(
        [Closed(socket.AF_INET, ("127.0.0.1", 9201), ("127.0.0.1", 40000), 8.0, reuse=False, reuse_port=False)]
    )
    fork = local_lab.fork_of(sandbox)
    for one in (sandbox, fork):
        assert one.observe().quiet_s <= 8
        used = sh(one, BIND % 9201)
        assert used == USED or time.monotonic() > began + 8
    for one in (sandbox, fork):
        eventually(lambda one=one: one.observe().active is None, timeout=60)  # type: ignore[misc]
        assert sh(one, BIND % 9201) == "bound\n"
    assert 8 <= time.monotonic() - began < 50


def test_both_ends(local_lab: Lab) -> None:
    """Where both sides closed at once, both ports are kept."""
    sandbox = local_lab.start()
    assert isinstance(sandbox, LocalSandbox)
    one = Closed(socket.AF_INET, ("127.0.0.1", 9201), ("127.0.0.1", 40000), 50.0, reuse=True, reuse_port=False)
    sandbox.time_waits.bring_back([one, replace(one, local=one.remote, remote=one.local, reuse=False)])
    for each in (sandbox, local_lab.fork_of(sandbox)):
        eventually(lambda each=each: sh(each, "grep -c ' 06 ' /proc/net/tcp") == "2\n")  # type: ignore[misc]
        assert sh(each, BIND % 9201) == sh(each, BIND % "40000 SO_REUSEADDR") == USED
        assert sh(each, BIND % "9201 SO_REUSEADDR") == "bound\n"
