"""Why calls were executed: counted by kind, and told once where hardly any is answered."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.fakes.caches import BUSY, bash, open_cache, run
from tvsnap import Budget
from tvsnap.engine import hint
from tvsnap.model.reasons import REASONS
from tvsnap.upkeep.figures import reasons


def test_executed_calls_are_counted_by_reason(tmp_path: Path) -> None:
    with open_cache(tmp_path, policy="never", budget=Budget(parked=0)) as cache:
        run(cache, "echo $RANDOM > f", "cat f")
        run(cache, "echo $RANDOM > f", "cat f")
        with cache.rollout("terminal") as rollout:
            bash(rollout, BUSY, timeout=2.0)
            bash(rollout, "ls")
        stats = cache.stats()
        assert stats.reasons == {"new": 4, "unkept": 1, "private": 1}
        assert sum(stats.reasons.values()) == stats.executed
    with open_cache(tmp_path) as cache:
        assert cache.graph.counters()["reason.unkept"] == 1


def test_reasons_have_words_and_advice() -> None:
    told = reasons({"private": 1, "new": 7})
    assert [(one["kind"], one["count"]) for one in told] == [("new", 7), ("private", 1)]
    assert all(one["reason"] == REASONS[one["kind"]].words and one["advice"] for one in told)


def test_a_cache_that_answers_hardly_anything_says_why_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hint, "ENOUGH", 4)
    with caplog.at_level(logging.WARNING, "tvsnap"), open_cache(tmp_path) as cache:
        for number in range(4):
            run(cache, f"echo {number} > f", f"echo {number} > g")
    assert [record.getMessage() for record in caplog.records] == [
        "0 of the first 4 calls were answered: 4 were made in their state for the first time; "
        f"{REASONS['new'].advice} (tvsnap stats)"
    ]


def test_a_cache_that_answers_some_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hint, "ENOUGH", 4)
    with caplog.at_level(logging.WARNING, "tvsnap"), open_cache(tmp_path) as cache:
        for _ in range(4):
            run(cache, "echo 1 > f", "echo 2 > g")
    assert not caplog.records
