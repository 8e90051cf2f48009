"""What is evicted, against an oracle that goes by the words of the definition; a budget that holds at every step."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.backend import FakeBackend, fake_image
from tests.fakes.caches import settle
from tests.property.histories import Call, histories
from tvsnap import Budget, Cache
from tvsnap.engine.keeping.policy.eviction import UNPROVEN_S, YOUTH_S, Kept, SnapshotLimits, choose_evicted
from tvsnap.model.limits import MIB

SCALE = int(os.environ.get("TVSNAP_TEST_EXAMPLES", "0"))
COMMON = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=SCALE == 0,
    max_examples=200 * max(SCALE, 1),
)
NOW = 10_000.0


@st.composite
def snapshots(draw: st.DrawFn, most: int = 9) -> list[Kept]:
    """A few snapshots, each below an earlier one or below the root."""
    found: list[Kept] = []
    for number in range(draw(st.integers(0, most))):
        above = draw(st.sampled_from([None, *(kept.state for kept in found)]))
        found.append(
            Kept(
                state=f"state {number}",
                above=above,
                size=draw(st.integers(0, 50)),
                rebuild_s=draw(st.integers(0, 40)) / 4,
                forks=draw(st.integers(0, 5)),
                created=NOW - draw(st.integers(0, 5000)),
                reached=draw(st.integers(0, 5)) > 0,
                pinned=draw(st.integers(0, 5)) == 0,
                proven=draw(st.booleans()),
            )
        )
    return draw(st.permutations(found))


rooms = st.builds(SnapshotLimits, st.none() | st.integers(0, 200), st.none() | st.integers(0, 9))


def worth(kept: Kept, left: Sequence[Kept], every: Sequence[Kept], room: SnapshotLimits) -> float:
    """What a snapshot is worth by definition, found without any of what the real thing keeps in mind."""
    by_state = {each.state: each for each in every}
    there = {each.state for each in left}

    def nearest(each: Kept) -> str | None:
        above = each.above
        while above is not None and above not in there:
            above = by_state[above].above
        return above

    seconds, at = 0.0, kept
    while True:  # the way up to the nearest that is left
        seconds += at.rebuild_s + UNPROVEN_S * (not at.proven)
        if at.above is None or at.above in there:
            break
        at = by_state[at.above]
    needed = [kept, *(each for each in every if each.state not in there and nearest(each) == kept.state)]
    demand = sum((each.forks + 1) / (NOW - each.created + YOUTH_S) for each in needed if each.reached)
    shares = [max(kept.size, 1) / max(room.size, 1)] if room.size is not None else []
    shares += [1 / max(room.count, 1)] if room.count is not None else []
    return demand * seconds / (sum(shares) or 1.0)


def fits(left: Sequence[Kept], room: SnapshotLimits) -> bool:
    return (room.size is None or sum(kept.size for kept in left) <= room.size) and (
        room.count is None or len(left) <= room.count
    )


@COMMON
@given(every=snapshots(), room=rooms)
def test_each_that_goes_is_the_one_of_least_worth_then(every: list[Kept], room: SnapshotLimits) -> None:
    left = list(every)
    for gone in choose_evicted(every, room, NOW):
        assert not fits(left, room), "it goes on though the others fit"
        assert not gone.pinned
        assert gone in left
        least = min(worth(kept, left, every, room) for kept in left if not kept.pinned)
        found = worth(gone, left, every, room)
        assert found <= least * (1 + 1e-9) + 1e-12, (gone, found, least)
        left.remove(gone)
    assert fits(left, room) or all(kept.pinned for kept in left)


@COMMON
@given(every=snapshots(), room=rooms, fraction=st.floats(0, 1))
def test_less_room_lets_more_go_in_the_same_order(every: list[Kept], room: SnapshotLimits, fraction: float) -> None:
    """With one limit: two would have other prices in another room."""
    for one in (SnapshotLimits(room.size), SnapshotLimits(None, room.count)):
        smaller = one.part(fraction)
        if one.size is not None and smaller.size == 0:
            continue  # of no room at all, no snapshot takes a part
        more, fewer = choose_evicted(every, smaller, NOW), choose_evicted(every, one, NOW)
        assert more[: len(fewer)] == fewer


@COMMON
@given(every=snapshots(), room=rooms)
def test_the_order_in_which_they_come_does_not_matter(every: list[Kept], room: SnapshotLimits) -> None:
    other = sorted(every, key=lambda kept: kept.state)
    assert choose_evicted(every, room, NOW) == choose_evicted(other, room, NOW)


@pytest.mark.usefixtures("proofs_at_once")
@settings(COMMON, max_examples=60 * max(SCALE, 1))
@given(
    group=histories("scripted", longest=10),
    disk=st.none() | st.sampled_from([0, 3, 10, 60, 400]),
    count=st.none() | st.integers(0, 4),
    policy=st.sampled_from(["eager", "default"]),
)
def test_a_budget_holds_after_every_call_and_answers_stay_right(
    tmp_path_factory: pytest.TempPathFactory, group: list[list[Call]], disk: int | None, count: int | None, policy: str
) -> None:
    home, backend = tmp_path_factory.mktemp("budget"), FakeBackend()
    budget = Budget(
        disk=disk, snapshots=count, memory=12 * MIB, sandboxes=3, parked=2
    )  # a fake sandbox weighs 5 MiB and more
    with (
        Cache(home / "fresh", backend=FakeBackend(), use_cache=False, same_ids=True) as fresh,
        Cache(home / "cached", backend=backend, policy=policy, budget=budget) as cached,
    ):
        for calls in [*group, *group]:
            with fresh.rollout(fake_image()) as right, cached.rollout(fake_image()) as rollout:
                for call in calls:
                    wanted = right.call(call.name, dict(call.arguments), call.timeout or 20.0)
                    found = rollout.call(call.name, dict(call.arguments), call.timeout or 20.0)
                    assert found.same_value(wanted), call
                    settle(rollout)
                    there, size = cached.graph.snapshot_usage(backend.name)
                    assert disk is None or size <= disk
                    assert count is None or there <= count
                    assert cached.pool.live <= 3
        rows = {snapshot.id for snapshot in cached.graph.snapshots()}
    assert set(backend.snapshots()) == rows, "files without a row, or rows without files"
