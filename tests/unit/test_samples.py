"""Samples of a sandbox's processor time: since when it has been what it is."""

from __future__ import annotations

import os
import time

import pytest

from tests.conformance.helpers import eventually
from tvsnap.sandboxes.looks.samples import Samples


def test_since_when_nothing_has_run() -> None:
    used = [1.0]
    samples = Samples(lambda: used[0])
    assert samples.still_since() is None, "nothing was looked at"
    before = time.monotonic()
    samples.begin()
    since = samples.still_since()
    assert since is not None
    assert before <= since <= time.monotonic()
    ran = time.monotonic()
    used[0] = 2.0
    assert (eventually(samples.still_since) or 0.0) >= ran
    used[0] = 1.0  # cannot be, but what counts is the last moment
    assert eventually(lambda: (samples.still_since() or 0.0) > ran)
    samples.end()
    assert samples.still_since() is None


def test_what_is_not_known_never_stands_still() -> None:
    samples = Samples(lambda: 0.0)
    samples.begin()
    assert samples.still_since() is None


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "in use"])
def test_a_forked_process_takes_its_own_samples(busy: bool) -> None:
    others = [Samples(lambda: 1.0) for _ in range(50 * busy)]
    for each in others:
        each.begin()
    pid = os.fork()
    if pid == 0:
        used = [1.0]
        samples = Samples(lambda: used[0])
        samples.begin()
        used[0] = 2.0
        os._exit(0 if eventually(samples.still_since, timeout=30) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
