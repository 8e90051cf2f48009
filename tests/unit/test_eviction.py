"""What snapshots are worth: the plain cases by hand, ways in the graph, and how long it takes where there are many."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

import pytest

from tests.unit.graph_helpers import add_root, call, result, snapshot_of, step, walk
from tvsnap.engine.keeping.budgets import Ledger
from tvsnap.engine.keeping.holds import Holds
from tvsnap.engine.keeping.policy.eviction import UNPROVEN_S, Kept, SnapshotLimits, choose_evicted
from tvsnap.graph import Graph, NewEdge
from tvsnap.host.owners import Owner
from tvsnap.model.calls import next_state

NOW = 1000.0


def kept(state: str, above: str | None = None, size: int = 100, rebuild_s: float = 1.0, forks: int = 0) -> Kept:
    return Kept(state, above, size, rebuild_s, forks, NOW)


def names(chosen: list[Kept]) -> list[str]:
    return [each.state for each in chosen]


def test_nothing_goes_while_all_fit() -> None:
    there = [kept("a"), kept("b")]
    for room in (SnapshotLimits(), SnapshotLimits(200), SnapshotLimits(None, 2), SnapshotLimits(200, 2)):
        assert choose_evicted(there, room, NOW) == []


@pytest.mark.parametrize(
    "other",
    [
        kept("b", rebuild_s=0.5),
        kept("b", size=300),
        kept("a", forks=-1),  # as one that was never forked is to one that was
        kept("b")._replace(created=NOW - 5000),
        kept("b")._replace(reached=False, forks=1000),
    ],
)
def test_what_saves_less_for_its_size_goes_first(other: Kept) -> None:
    better = kept("c")
    assert choose_evicted([better, other], SnapshotLimits(other.size + 99), NOW) == [other]


def test_bytes_do_not_count_where_only_the_number_is_limited() -> None:
    there = [kept("big", size=10**9, rebuild_s=2.0), kept("small", size=1)]
    assert names(choose_evicted(there, SnapshotLimits(None, 1), NOW)) == ["small"]
    assert names(choose_evicted(there, SnapshotLimits(10**9), NOW)) == ["big"]


def test_those_below_are_dearer_once_the_one_above_has_gone() -> None:
    # By itself, "low" would save least; without "high", its way is that of both.
    there = [kept("high", rebuild_s=3.0), kept("low", "high", rebuild_s=4.0), kept("other", rebuild_s=5.0)]
    assert names(choose_evicted(there, SnapshotLimits(100), NOW)) == ["high", "other"]


def test_the_one_above_is_needed_more_once_those_below_have_gone() -> None:
    below = [kept(f"low {n}", "high", rebuild_s=1.0) for n in range(5)]
    there = [kept("high", rebuild_s=1.5), *below, kept("other", rebuild_s=6.0)]
    assert names(choose_evicted(there, SnapshotLimits(200), NOW)) == [each.state for each in below]


def test_a_long_way_over_what_has_gone_is_added_up() -> None:
    unused = [kept(str(n), str(n - 1) if n else None, rebuild_s=0.01)._replace(reached=False) for n in range(999)]
    last, other = kept("last", "998", rebuild_s=0.02), kept("other", rebuild_s=9.0)
    there = [last, *unused, other]
    assert set(choose_evicted(there, SnapshotLimits(200), NOW)) == set(unused)
    assert names(choose_evicted(there, SnapshotLimits(100), NOW))[-1] == "other"  # 9 s, and all that way takes 10.01


def test_what_only_its_snapshot_keeps_counts_for_more() -> None:
    """Without it nothing beyond is answered, and whoever comes next executes the call anew."""
    there = [kept("a", rebuild_s=0.5)._replace(proven=False), kept("b", rebuild_s=1.2), kept("c", rebuild_s=9.0)]
    assert UNPROVEN_S + 0.5 > 1.2
    assert names(choose_evicted(there, SnapshotLimits(200), NOW)) == ["b"]
    assert names(choose_evicted(there, SnapshotLimits(100), NOW)) == ["b", "a"]


def test_what_is_pinned_stays_though_there_is_no_room() -> None:
    there = [kept("a")._replace(pinned=True), kept("b"), kept("c")]
    assert names(choose_evicted(there, SnapshotLimits(0, 0), NOW)) == ["b", "c"]


def test_a_part_of_a_room_has_a_place_where_the_room_has() -> None:
    assert SnapshotLimits(1000, 10).part(0.9) == SnapshotLimits(900, 9)
    assert SnapshotLimits(None, 2).part(0.9) == SnapshotLimits(None, 2)
    assert SnapshotLimits(None, 1).part(0.5) == SnapshotLimits(None, 1)
    assert SnapshotLimits(None, 0).part(0.5) == SnapshotLimits(None, 0)


def test_ten_thousand_are_a_matter_of_a_moment() -> None:
    """Not measured to the second: looking at each anew for each that goes would take minutes."""
    chance = random.Random(1)
    there = [kept("0")]
    for number in range(1, 10_000):
        above = str(chance.randrange(max(0, number - 50), number))
        there.append(kept(str(number), above, chance.randrange(1, 10**7), chance.random(), chance.randrange(5)))
    began = time.process_time()
    chosen = choose_evicted(there, SnapshotLimits(sum(each.size for each in there) // 10), NOW)
    assert len(chosen) > 5000
    assert time.process_time() - began < 10


def test_ways_are_those_to_the_nearest_snapshot(tmp_path: Path) -> None:
    chance = random.Random(7)
    with Graph(tmp_path / "graph.db") as graph:
        states = [add_root(graph)]
        for number in range(60):
            states.append(step(graph, chance.choice(states), f"call {number}", duration=number / 8).next_state)
        for state in chance.sample(states, 25):
            graph.add_snapshot(snapshot_of(state))
        graph.add_snapshot(snapshot_of(states[0], "another backend's", backend="other"))
        ways = {way.snapshot.state: way for way in graph.snapshot_ways("fake")}
        assert set(ways) == {snapshot.state for snapshot in graph.snapshots("fake")}
        for state, way in ways.items():
            edge = graph.edge_to(state)
            if edge is None:
                assert (way.above, way.calls, way.seconds) == (None, 0, 0.0)
                continue
            above, edges = graph.nearest_snapshot(edge.state, "fake")
            assert way.above == (None if above is None else above.state)
            assert way.calls == len(edges) + 1
            assert way.seconds == pytest.approx(sum(each.result.duration for each in [*edges, edge]))
            assert way.answered


def test_ways_over_calls_that_are_no_longer_answered(tmp_path: Path) -> None:
    with Graph(tmp_path / "graph.db") as graph:
        states = walk(graph, add_root(graph), "a", "b", "c")
        for state in states[1:]:
            graph.add_snapshot(snapshot_of(state))
        edge = graph.edge_to(states[2])
        assert edge is not None
        graph.mark_nondeterministic(edge, "it differed")
        found = {way.snapshot.state: way.answered for way in graph.snapshot_ways("fake")}
        assert found == {states[1]: True, states[2]: False, states[3]: True}


def test_a_way_is_proven_if_all_calls_on_it_are(tmp_path: Path) -> None:
    with Graph(tmp_path / "graph.db") as graph:
        root = add_root(graph)
        first = next_state(root, call("a"), identity="what a left behind")
        edge = graph.record(NewEdge(root, call("a"), result(), next_state=first))
        second, third, fourth = walk(graph, first, "b", "c", "d")[1:]
        for state in (second, third):
            graph.add_snapshot(snapshot_of(state))
        graph.add_snapshot(snapshot_of(fourth, backend="other"))
        ledger = Ledger(graph, "fake", Holds(tmp_path))
        assert {state: kept.proven for state, (kept, _) in ledger.read().items()} == {second: False, third: True}
        graph.prove(edge)
        assert {state: kept.proven for state, (kept, _) in ledger.read().items()} == {second: True, third: True}


def test_what_rollouts_stand_on_is_pinned(tmp_path: Path) -> None:
    """That is the nearest snapshot above each: what is between can be made again."""
    with Graph(tmp_path / "graph.db") as graph, contextlib.closing(Owner(tmp_path)) as owner:
        root = add_root(graph)
        one, two, three = walk(graph, root, "a", "b", "c")[1:]
        other = walk(graph, root, "x")[1]
        for state in (one, two, other):
            graph.add_snapshot(snapshot_of(state))
        holds = Holds(tmp_path, owner.id)
        ledger = Ledger(graph, "fake", Holds(tmp_path))
        assert {state for state, (kept, _) in ledger.read().items() if kept.pinned} == set()
        rollouts = [holds.add() for _ in range(3)]
        for rollout, state in zip(rollouts, (root, three, "ab" * 32), strict=True):
            rollout.stand(state)
        rollouts[0].approach(other)
        known = ledger.read()
        assert {state for state, (kept, _) in known.items() if kept.pinned} == {two, other}
        assert names(choose_evicted([kept for kept, _ in known.values()], SnapshotLimits(None, 0), NOW)) == [one]
        rows = [snapshot for _, snapshot in known.values()]
        assert {snapshot.state for snapshot in ledger.evict(rows)} == {one}, "whatever was chosen before"
        rollouts[1].stand(root)
        rollouts[0].release()
        assert {snapshot.state for snapshot in ledger.evict(rows)} == {two, other}
        holds.close()


def test_rows_are_dropped_by_whoever_comes_first(tmp_path: Path) -> None:
    with Graph(tmp_path / "graph.db") as graph:
        states = walk(graph, add_root(graph), "a", "b")
        both = [snapshot_of(state) for state in states[1:]]
        for snapshot in both:
            graph.add_snapshot(snapshot)
        assert graph.drop_snapshot(both[0].state, "fake")
        assert graph.drop_snapshots(both) == both[1:]
        assert graph.snapshot_usage("fake") == (0, 0)


def test_no_row_is_added_beyond_the_limits(tmp_path: Path) -> None:
    with Graph(tmp_path / "graph.db") as graph:
        states = walk(graph, add_root(graph), "a", "b", "c")
        one, two, three = (snapshot_of(state) for state in states[1:])  # of 4096 bytes each
        assert graph.add_snapshot(one, size=4096, count=1)
        assert not graph.add_snapshot(two, size=8191)
        assert not graph.add_snapshot(two, count=1)
        assert graph.add_snapshot(two, size=8192, count=2)
        assert graph.add_snapshot(three)
        assert graph.snapshot_usage("fake") == (3, 3 * 4096)
