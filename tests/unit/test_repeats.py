"""Where calls are hardly ever made twice, they are not recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.caches import bash, open_cache, settle
from tvsnap import Cache
from tvsnap.engine.keeping.policy import BreakEven
from tvsnap.engine.keeping.repeats import ENOUGH, FORK, MOST_CALLS, MOST_STATES, NEVER_REPEATED, RECORD, Repeats


class Keeping(BreakEven):
    """Keeps every state."""

    name = "keeping"

    def should_checkpoint(self, *_: object) -> bool:
        return True


@pytest.fixture(autouse=True)
def all_is_recorded() -> None:
    """Here, it is not."""


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with open_cache(tmp_path, policy=Keeping()) as cache:
        yield cache


def many(repeats: Repeats, count: int, seconds: float = 0.0, name: str = "") -> list[bool]:
    """Makes different calls in one state; returns which of them are to be recorded."""
    found = []
    for number in range(count):
        found.append(repeats.should_record("state", f"{name}{number}"))
        repeats.took("state", seconds)
    return found


def test_the_first_calls_in_a_state_are_recorded_and_more_short_ones_if_calls_are_repeated() -> None:
    repeats = Repeats()
    assert many(repeats, ENOUGH + 10) == [True] * ENOUGH + [False] * 10
    for _ in range(ENOUGH * 2):
        repeats.answered("state")
    assert repeats.should_record("state", "another")
    assert repeats.should_record("another state", "another")


def test_a_call_that_is_made_again_is_recorded_then() -> None:
    repeats = Repeats()
    many(repeats, ENOUGH)
    assert [repeats.should_record("state", "same") for _ in range(3)] == [False, True, False]


def test_long_calls_are_recorded_although_they_are_rare() -> None:
    repeats = Repeats()
    assert all(many(repeats, ENOUGH * 2, ENOUGH * 4 * RECORD))


def test_what_a_private_branch_takes_counts_where_it_began() -> None:
    repeats = Repeats()
    many(repeats, ENOUGH)
    assert not repeats.should_record("state", "short")
    repeats.took("state", 100.0)
    assert repeats.should_record("state", "another")
    assert FORK < 100.0


def test_no_more_is_remembered_than_is_needed() -> None:
    repeats = Repeats()
    many(repeats, ENOUGH + 2 * MOST_CALLS)
    assert len(repeats._states["state"].private) == MOST_CALLS
    for number in range(MOST_STATES + 5):
        repeats.answered(str(number))
    assert len(repeats._states) == MOST_STATES


def test_rollouts_that_part_from_one_state_and_never_meet_again(cache: Cache) -> None:
    def go(*commands: str) -> tuple[list[str], str | None]:
        with cache.rollout("terminal") as rollout:
            results = [bash(rollout, command) for command in commands]
            settle(rollout)
            return [result.source for result in results], rollout.private

    for _ in range(3):
        go("echo shared > f")
    for number in range(ENOUGH):
        assert go("echo shared > f", f"echo {number} >> f")[1] is None
    assert go("echo shared > f", "echo rare >> f", "cat f") == (["hit", "executed", "executed"], NEVER_REPEATED)
    assert go("echo shared > f", "echo rare >> f", "cat f") == (["hit", "executed", "executed"], None)
    assert go("echo shared > f", "echo rare >> f", "cat f") == (["hit"] * 3, None)
    assert go("echo shared > f", "echo 0 >> f") == (["hit"] * 2, None)
