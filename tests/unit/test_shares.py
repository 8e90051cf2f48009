"""Owners that share a cache: none takes another's part of the snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend
from tests.fakes.caches import bash, eventually, open_cache, settle
from tvsnap import Budget
from tvsnap.cache import Cache
from tvsnap.engine.keeping.policy.eviction import Kept, SnapshotLimits, choose_evicted, parts_of
from tvsnap.model.errors import NotCheckpointable, UsageError
from tvsnap.model.shares import OTHERS, Share, Shares

NOISY, QUIET = Share("noisy", "noisy: "), Share("quiet", "quiet: ")
NOW = 1000.0


def kept(state: str, owner: str, rebuild_s: float = 1.0, *, pinned: bool = False) -> Kept:
    return Kept(state, None, 100, rebuild_s, 0, NOW, pinned=pinned, owner=owner)


def names(chosen: list[Kept]) -> list[str]:
    return [each.state for each in chosen]


def test_parts_are_by_weight_or_as_given() -> None:
    shares = Shares([Share("one", "1 ", weight=2), Share("two", "2 ", disk=400), Share("three", "3 ")])
    assert shares.parts() == {OTHERS: 1 / 5, "one": 2 / 5, "two": 1 / 5, "three": 1 / 5}
    assert shares.sizes(1000) == {"two": 400, OTHERS: 150, "one": 300, "three": 150}
    assert [shares.owner(salt) for salt in ("1 x", "2 ", "x", "")] == ["one", "two", OTHERS, OTHERS]
    assert parts_of(SnapshotLimits(1000, 10), shares)["one"] == SnapshotLimits(300, 4)
    assert parts_of(SnapshotLimits(1000), Shares()) == {}


def test_who_takes_more_than_its_part_loses_its_own_first() -> None:
    shares = Shares([NOISY, QUIET])
    room = SnapshotLimits(900)
    there = [kept(f"n{number}", "noisy", 9.0) for number in range(8)] + [kept("q0", "quiet"), kept("q1", "quiet")]
    parts = parts_of(room, shares)
    assert names(choose_evicted(there, room, NOW)) == ["q0"], "without shares, the least useful one"
    for asking in ("noisy", "quiet", OTHERS, None):
        assert names(choose_evicted(there, room, NOW, parts, asking)) == ["n0"]


def test_nobody_loses_what_is_within_its_part_for_what_others_have_pinned() -> None:
    room = SnapshotLimits(900)
    parts = parts_of(room, Shares([NOISY, QUIET]))
    there = [kept(f"n{number}", "noisy", pinned=True) for number in range(8)] + [
        kept("q0", "quiet"),
        kept("q1", "quiet"),
    ]
    assert choose_evicted(there, room, NOW, parts, "noisy") == []
    assert names(choose_evicted(there, room, NOW, parts, "quiet")) == ["q0"], "its own"


@pytest.mark.parametrize(
    ("size", "reason"), [(None, "noisy has a budget .* no limit"), (10, "noisy are 11 bytes .* may take 10")]
)
def test_parts_that_are_none_of_the_budget_are_refused(tmp_path: Path, size: int | None, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Cache(tmp_path, backend=FakeBackend(), budget=Budget(disk=size), shares=[Share("noisy", "n", disk=11)])


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    """A cache that two share, with room for six snapshots: two for each of both, and two for all others."""
    with open_cache(tmp_path, FakeBackend(), budget=Budget(snapshots=6, parked=0), shares=[NOISY, QUIET]) as opened:
        yield opened


def run(cache: Cache, owner: str, *commands: str) -> list[str]:
    """Makes a rollout of an owner; returns its states."""
    states = []
    with cache.rollout("terminal", salt=f"{owner}: ") as rollout:
        for command in commands:
            bash(rollout, command)
            settle(rollout)
            states.append(rollout.state)
    return states


def has(cache: Cache, *states: str) -> bool:
    return all(cache.graph.snapshot(state, cache.backend.name) is not None for state in states)


def test_the_snapshots_of_a_quiet_owner_stay(cache: Cache) -> None:
    quiet = run(cache, "quiet", "sleep 1; echo 1 > a", "sleep 1; echo 2 > b")
    for number in range(20):
        run(cache, "noisy", f"sleep {9 + number}; echo {number} > c")  # each is worth more
    assert cache.stats().evicted >= 15
    assert has(cache, *quiet)


def test_a_quiet_owner_gets_its_part_of_what_others_have_taken(cache: Cache) -> None:
    for number in range(10):
        run(cache, "noisy", f"sleep {9 + number}; echo {number} > c")
    eventually(lambda: len(cache.graph.snapshots()) >= 5)
    quiet = run(cache, "quiet", "sleep 1; echo 1 > a", "sleep 1; echo 2 > b")
    assert has(cache, *quiet)
    assert cache.trouble is None


def test_what_is_kept_by_hand_takes_nothing_of_others(cache: Cache) -> None:
    quiet = run(cache, "quiet", "sleep 1; echo 1 > a", "sleep 1; echo 2 > b")
    refusals = []
    for number in range(7):
        with cache.rollout("terminal", salt="noisy: ") as rollout:
            rollout.sandbox().run(f"echo {number} > c", timeout=60)
            try:
                rollout.keep(f"kept-{number}")
            except NotCheckpointable as refusal:
                refusals.append(str(refusal))
    assert len(refusals) == 3
    assert all("by those that others have within their shares" in refusal for refusal in refusals)
    assert has(cache, *quiet)
