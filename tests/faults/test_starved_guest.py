"""Sandboxes that get no processor for a while: what their calls come to then is no fault of the image's."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fakes.caches import eventually
from tvsnap import Limits
from tvsnap.host.owners import Owner
from tvsnap.images import Image
from tvsnap.sandboxes.local import LocalBackend

TIMEOUT = 6.0


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[LocalBackend]:
    owner = Owner(tmp_path)
    backend = LocalBackend(tmp_path, owner.id)
    yield backend
    backend.close()
    owner.close()


def test_a_call_that_was_not_watched_is_not_known_to_have_waited(backend: LocalBackend, terminal_image: Image) -> None:
    sandbox = backend.start(terminal_image, Limits())
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(sandbox.run, "echo > /tmp/began; cat", timeout=TIMEOUT)
        eventually((sandbox.layer / "upper/tmp/began").exists, 60)
        os.kill(sandbox.init, signal.SIGSTOP)
        time.sleep(1.5 * TIMEOUT)  # beyond the timeout, which PID 1 learns of too late
        os.kill(sandbox.init, signal.SIGCONT)
        outcome = call.result(60)
    assert outcome.timed_out
    assert not outcome.blocked


def test_a_timeout_before_the_shell_is_ready_is_a_timeout(backend: LocalBackend, terminal_image: Image) -> None:
    sandbox = backend.start(terminal_image, Limits())
    outcome = sandbox.run("echo never", timeout=0.00005)  # a command takes some 0.4 ms
    assert outcome.timed_out
    assert not outcome.blocked
    assert sandbox.run("echo again", timeout=60).output == b"again\n"


def test_a_late_interrupt_does_not_run_a_command_twice(backend: LocalBackend, terminal_image: Image) -> None:
    """As one that a starved shell comes to take only when the next command is already on its way to it."""
    sandbox = backend.start(terminal_image, Limits())
    assert sandbox.run("echo first", timeout=60).output == b"first\n"
    (shell,) = set(sandbox.cgroup.pids()) - {sandbox.init}
    for number in range(1, 4):
        os.kill(shell, signal.SIGSTOP)
        os.kill(shell, signal.SIGINT)
        with ThreadPoolExecutor(1) as threads:
            call = threads.submit(sandbox.run, "echo more >> /tmp/f; wc -l < /tmp/f", timeout=60)
            time.sleep(0.3)  # for PID 1 to hand it over; if that is too short, this proves less
            os.kill(shell, signal.SIGCONT)
            outcome = call.result(60)
        assert (outcome.output, outcome.exit_code, outcome.shell_lost) == (f"{number}\n".encode(), 0, False)
