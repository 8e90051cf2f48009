"""The line of the log that says what answered a call, or why nothing did."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.fakes.caches import bash, open_cache, run, settle


def test_each_call_has_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_cache(tmp_path, prefork=0) as cache:
        run(cache, "echo a > f")
        with caplog.at_level(logging.DEBUG, "tvsnap.calls"), cache.rollout("terminal") as rollout:
            bash(rollout, "echo a > f")
            bash(rollout, "cat f")
            settle(rollout)
            bash(rollout, "pwd")
    lines = [record.getMessage() for record in caplog.records if record.name == "tvsnap.calls"]
    assert [line.partition(" bash ")[2].rpartition(" (")[0] for line in lines] == [
        '"echo a > f": answered (hit) by call 1 of the graph',
        '"cat f": executed in a sandbox that was parked, because it was not made in this state before',
        '"pwd": executed in the rollout\'s sandbox, because it was not made in this state before',
    ]


def test_a_rollout_without_the_cache_has_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_cache(tmp_path, use_cache=False) as cache, caplog.at_level(logging.DEBUG, "tvsnap.calls"):
        run(cache, "echo a > f")
    assert not [record for record in caplog.records if record.name == "tvsnap.calls"]
