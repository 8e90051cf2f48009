"""For how long nothing has run in a sandbox: never longer than that, whatever happened there."""

from __future__ import annotations

import time

import pytest

from tests.conformance.helpers import eventually, sh
from tvsnap.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Stillness
from tvsnap.sandboxes.local import LocalBackend
from tvsnap.sandboxes.local.sandbox import LocalSandbox

AFTER = 0.4
"""Seconds after which something happens in each of these."""
PYTHON = "import ctypes, os, signal, struct, subprocess, threading, time; "
HAPPENS = {
    "a process goes on": f"time.sleep({AFTER}); signal.pause()",
    "a process ends": f"time.sleep({AFTER})",
    "a child ends that nobody waits for": (
        f"signal.signal(17, signal.SIG_IGN); subprocess.Popen(['sleep', '{AFTER}']); signal.pause()"
    ),
    "a thread ends": f"threading.Thread(target=time.sleep, args=({AFTER},)).start(); signal.pause()",
    "a timer that nobody reads rings": (
        "c = ctypes.CDLL(None); f = c.timerfd_create(1, 0); "
        f'c.timerfd_settime(f, 0, struct.pack("4q", 0, 0, 0, {AFTER * 1e9:.0f}), None); signal.pause()'
    ),
}


@pytest.fixture
def sandbox(backend: LocalBackend, terminal_image: Image) -> LocalSandbox:
    return backend.start(terminal_image, Limits())


@pytest.mark.parametrize("name", HAPPENS)
def test_what_happened_in_between_is_no_stillness(sandbox: LocalSandbox, name: str) -> None:
    began = time.monotonic()
    sandbox.write_file("/tmp/program.py", (PYTHON + HAPPENS[name]).encode())
    sh(sandbox, "sleep 1000 & python3 /tmp/program.py & sleep 0.2")
    sandbox.observe()
    time.sleep(2 * AFTER)
    for _ in range(2):
        stillness = sandbox.stillness()
        assert stillness is None or stillness.since_s <= time.monotonic() - began - AFTER
        sandbox.observe()


def test_what_waits_has_stood_still_since_the_last_look(sandbox: LocalSandbox) -> None:
    sh(sandbox, "sleep 1000 & sleep 0.2")

    def stillness() -> Stillness | None:
        looked = time.monotonic()
        sandbox.observe()
        time.sleep(AFTER)
        found = sandbox.stillness()
        assert found is None or found.since_s <= time.monotonic() - looked
        return found if found is not None and found.since_s > AFTER / 2 else None  # a busy machine's shell runs longer

    found = eventually(stillness)
    assert found is not None
    assert 900 < found.until_s < 1000


def test_what_runs_again_and_again_stands_still_for_moments_only(sandbox: LocalSandbox) -> None:
    sh(sandbox, "while sleep 0.1; do :; done & sleep 0.2")
    for _ in range(20):
        sandbox.observe()
        time.sleep(0.03)
        stillness = sandbox.stillness()
        assert stillness is None or stillness.until_s <= 0.1
