"""Sandboxes that get no processor for a while: what their calls come to then is no fault of the image's."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.cache_helpers import eventually
from tvsnap import Limits
from tvsnap.backends.local import LocalBackend
from tvsnap.images import Image
from tvsnap.owners import Owner

TIMEOUT = 2.0


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
        eventually((sandbox.layer / "upper/tmp/began").exists, 20)
        os.kill(sandbox.init, signal.SIGSTOP)
        time.sleep(1.5 * TIMEOUT)  # beyond the timeout, which PID 1 learns of too late
        os.kill(sandbox.init, signal.SIGCONT)
        outcome = call.result(60)
    assert outcome.timed_out
    assert not outcome.blocked


def test_a_timeout_before_the_shell_is_ready_is_a_timeout(backend: LocalBackend, terminal_image: Image) -> None:
    sandbox = backend.start(terminal_image, Limits())
    outcome = sandbox.run("echo never", timeout=0.0005)
    assert outcome.timed_out
    assert not outcome.blocked
    assert sandbox.run("echo again", timeout=60).output == b"again\n"
