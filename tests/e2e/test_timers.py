"""What the kernel tells of timers, whether it says whose they are or not."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator

import pytest

from tvsnap.sandboxes.looks import activity, timers
from tvsnap.sandboxes.looks.alarms import ALARMS, Alarms


@pytest.fixture
def processes() -> Iterator[tuple[int, int]]:
    """One that has set a timer, and this one, which has set an alarm."""
    before = signal.alarm(700)
    with subprocess.Popen(["timeout", "600", "sleep", "800"]) as ringing:
        time.sleep(0.3)
        yield ringing.pid, os.getpid()
        ringing.terminate()
    signal.alarm(before)


@pytest.mark.parametrize("others", [0, 100], ids=["one by one", "of all processes"])
def test_whose_they_are(processes: tuple[int, int], others: int) -> None:
    ringing, ours = processes
    try:
        alarms, posix = Alarms().left({*processes, *range(1 << 22, (1 << 22) + others)})
    except OSError as lack:
        pytest.skip(f"this kernel does not tell: {lack}")
    assert 690 < alarms[ours] <= 700
    assert 590 < posix[ringing] <= 600
    assert ringing not in alarms
    assert ours not in posix


def test_the_first_of_all(processes: tuple[int, int]) -> None:
    """Where the kernel does not tell whose they are, none rings before the machine's first."""
    first = timers.first_to_ring()
    assert first[timers.ALARM] <= 700
    assert first[timers.POSIX] <= 600
    assert timers.posix_timers(processes[0])
    assert not timers.posix_timers(processes[1])


def test_in_doubt_any_may_be_ours(processes: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    def untold(pids: Collection[int]) -> None:
        raise OSError("as on an old kernel")

    monkeypatch.setattr(ALARMS, "left", untold)
    watch = activity.Watch(lambda: [processes[0]], os.getpid(), list)
    look = watch.look(0)
    assert "may have set a timer" in str(look.active)
    assert look.quiet_s <= 600
