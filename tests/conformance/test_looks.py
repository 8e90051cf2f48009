"""Looks from outside have an end: what there is too much of belongs to its own rollout, and holds up nobody."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conformance.helpers import TIMEOUT, Lab, eventually, sh, usable
from tvsnap import Budget, Cache
from tvsnap.host import native
from tvsnap.images import Image
from tvsnap.model.errors import NotCheckpointable
from tvsnap.sandboxes.kernel import allowance
from tvsnap.sandboxes.looks import observe

WITHOUT_RESERVE = """
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long
libc.mmap.restype = ctypes.c_void_p
for number in range(20):
    if os.fork() == 0:
        libc.mmap(None, 100 << 40, 3, 0x4021, -1, 0)  # shared, without reserve
        open(f"/tmp/ready.{number}", "w").close()
        time.sleep(1000)
"""


def test_what_takes_too_long_to_look_at_is_not_seen(lab: Lab) -> None:
    sandbox = lab.start()
    sh(sandbox, "sleep 1000 &")
    with allowance.Looks(longest=1e-9).one():  # what follows is part of this one, for which no time is left
        one, other = sandbox.observe(), sandbox.observe()
        assert {one.files, one.processes, one.shell}.isdisjoint({other.files, other.processes, other.shell})
        assert "it cannot be looked at" in str(one.active)
        assert sandbox.digest() is None
        with pytest.raises(NotCheckpointable, match="more in the sandbox than can be looked at"):
            lab.checkpoint(sandbox)
    usable(sandbox)
    assert "cannot be looked at" not in str(sandbox.observe().active)
    usable(lab.fork_of(sandbox))


def test_a_program_that_looks_is_ended() -> None:
    command = [str(native.INIT), "within", "1", "walk", "list", *["/usr"] * 1000]
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False, timeout=600).returncode == -signal.SIGKILL


def test_a_look_at_what_processes_hold_is_ended() -> None:
    with allowance.Looks(longest=1.0).one(), pytest.raises(allowance.NotSeen):
        observe._holds(None, [os.getpid()] * 100_000, [])


def test_what_nobody_could_look_at_leaves_less_time_for_the_next_look() -> None:
    several = allowance.Looks()

    def time_left() -> int:
        with several.one():
            return allowance.seconds()

    def look_too_long() -> None:
        with pytest.raises(allowance.NotSeen), several.one():
            raise allowance.too_long()

    for _ in range(2):
        look_too_long()
    with contextlib.suppress(allowance.NotSeen), several.one():
        left = allowance.seconds()
        raise allowance.too_long()
    assert left == 3
    for _ in range(9):
        look_too_long()
    assert time_left() == allowance.SHORTEST
    assert time_left() == allowance.LONGEST


def test_a_rollout_with_endless_memory_goes_on(tvsnap_home: Path, terminal_image: Image) -> None:
    """CRIU would look through it for minutes, while all stands still, and end the sandbox."""
    with (
        Cache(tvsnap_home, policy="eager", budget=Budget(parked=0), prefork=0) as cache,
        cache.rollout(terminal_image, salt=f"endless {time.time_ns()}") as rollout,
    ):

        def call(command: str) -> str:
            return rollout.call("bash", {"command": command}, timeout=TIMEOUT).output

        call(f"cat >/tmp/p <<'END'{WITHOUT_RESERVE}END")
        call("x=kept; python3 /tmp/p & until [ $(ls /tmp | grep -c ready) = 20 ]; do sleep 0.01; done; wait $!")
        state = rollout.state
        eventually(lambda: "TiB of shared memory" in str(cache.refusal(state)))
        assert call("echo $x; pgrep -fc /tmp/p") == "kept\n20\n"
        assert rollout.private is None
