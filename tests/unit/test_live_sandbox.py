"""What is known of a live sandbox after a snapshot of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.fakes.backend import FakeBackend, fake_image
from tvsnap.engine.live_sandbox import LiveSandbox
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Observation

BEFORE = Observation(files="f", processes="before", shell="s")
AFTER = replace(BEFORE, processes="after")


@pytest.mark.parametrize(
    ("quiet_s", "found", "expected"),
    [(math.inf, AFTER, "after"), (0.0, AFTER, "before"), (math.inf, replace(AFTER, files="other"), "before")],
)
def test_a_look_after_a_snapshot(quiet_s: float, found: Observation, expected: str) -> None:
    """It counts only where nothing runs by itself, and nothing but processes differs."""
    backend = FakeBackend()
    sandbox = backend.start(fake_image(), Limits())
    live = LiveSandbox(sandbox, "state", replace(BEFORE, quiet_s=quiet_s), disturbed=True)
    live.look_again(lambda _: found)
    assert live.observation is not None
    assert live.observation.processes == expected
    backend.close()


def test_processes_that_a_snapshot_woke_are_looked_at_once_they_sleep() -> None:
    backend = FakeBackend()
    live = LiveSandbox(backend.start(fake_image(), Limits()), "state", BEFORE, disturbed=True)
    looks = iter([replace(BEFORE, processes="awake", active="process 18 (sleep) is running", quiet_s=0.0), AFTER])
    live.look_again(lambda _: next(looks))
    assert live.observation == AFTER
    backend.close()


def test_nothing_is_looked_at_where_something_may_have_happened_by_itself() -> None:
    backend = FakeBackend()
    before = replace(BEFORE, active="process 18 (sh) is running", quiet_s=0.0)
    live = LiveSandbox(backend.start(fake_image(), Limits()), "state", before, disturbed=True)
    looks = iter([AFTER])
    live.look_again(lambda _: next(looks))
    assert [*looks] == [AFTER]
    assert live.observation == before
    assert not live.disturbed
    backend.close()
