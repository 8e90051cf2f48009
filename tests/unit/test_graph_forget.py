"""Deleting subtrees and tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.graph_helpers import add_root, call, claim, disorder, look, result, snapshot_of, step, walk
from tvsnap.graph import Graph, NewEdge
from tvsnap.model.errors import NotFound


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph(tmp_path / "tvsnap.db") as graph:
        yield graph
    assert disorder(tmp_path / "tvsnap.db") == []


def listed(graph: Graph) -> set[str]:
    return {node.state.hash for node in graph.tree()}


def test_forget_deletes_the_subtree_and_what_hangs_on_it(graph: Graph) -> None:
    root = add_root(graph)
    kept = walk(graph, root, "a", "b")
    below = walk(graph, kept[1], "x", "y")
    beside = walk(graph, below[1], "z")
    look(graph, below[2], "ls")
    for state in (kept[1], below[1], below[2]):
        graph.add_snapshot(snapshot_of(state))
        claim(graph, state, "next", "me")
    planned = graph.forget(below[1], dry_run=True)
    assert listed(graph) == {*kept, *below, *beside}
    done = graph.forget(below[1])
    assert done == planned
    assert (done.states, done.edges, done.leases, done.rollouts) == (3, 4, 2, 0)
    assert {snapshot.state for snapshot in done.snapshots} == {below[1], below[2]}
    assert listed(graph) == set(kept)
    assert graph.lookup(kept[1], call("x"), 30.0) is None
    assert graph.lookup(root, call("a"), 30.0) is not None
    assert [snapshot.state for snapshot in graph.snapshots()] == [kept[1]]
    assert [lease.state for lease in graph.leases()] == [kept[1]]


def test_what_was_forgotten_can_be_recorded_again(graph: Graph) -> None:
    root = add_root(graph)
    states = walk(graph, root, "a", "b")
    graph.forget(states[1])
    with pytest.raises(NotFound):
        step(graph, states[1], "b")
    assert walk(graph, root, "a", "b") == states


def test_forgetting_a_root_takes_its_rollouts(graph: Graph) -> None:
    root, other = add_root(graph), add_root(graph, salt="other")
    walk(graph, root, "a", "b")
    kept = walk(graph, other, "a")
    for start in (root, root, other):
        graph.begin_rollout(task="t", image="terminal", root=start)
    done = graph.forget(root)
    assert (done.states, done.edges, done.rollouts) == (3, 2, 2)
    assert listed(graph) == set(kept)
    assert [info.hash for info in graph.roots()] == [other]
    with pytest.raises(NotFound):
        graph.forget(root)


def test_forget_task_spares_what_others_visited(graph: Graph) -> None:
    root = add_root(graph)
    shared = walk(graph, root, "a", "b", task="alpha")
    alone = walk(graph, shared[2], "c", "d", task="alpha")
    look(graph, shared[1], "ls", task="alpha")
    look(graph, shared[1], "pwd", task="beta")
    walk(graph, root, "a", "b", task="beta")
    for task in ("alpha", "beta"):
        graph.begin_rollout(task=task, image="terminal", root=root)
    graph.add_snapshot(snapshot_of(alone[1]))
    planned = graph.forget_task("alpha", dry_run=True)
    done = graph.forget_task("alpha")
    assert done == planned
    assert (done.states, done.edges, done.rollouts) == (2, 3, 1)
    assert [snapshot.state for snapshot in done.snapshots] == [alone[1]]
    assert listed(graph) == set(shared)
    assert [edge.call for edge in graph.out_edges(shared[1])] == [call("b"), call("pwd")]
    assert graph.tasks() == ["beta"]
    graph.forget_task("beta")
    assert listed(graph) == set()
    assert graph.rollouts() == []


def test_a_hit_is_a_visit(graph: Graph) -> None:
    root = add_root(graph)
    edge = step(graph, root, "a", task="alpha")
    graph.touch_hit(edge, "beta")
    assert graph.forget_task("alpha").edges == 0
    assert graph.forget_task("beta").edges == 1


def test_what_leads_to_a_call_of_another_task_stays(graph: Graph) -> None:
    """Another process may have lost its visits on the way, but not those of the calls that it recorded."""
    root = add_root(graph)
    way = walk(graph, root, "a", "b", "c", task="alpha")
    look(graph, way[2], "ls", task="beta")
    graph.forget_task("alpha")
    assert listed(graph) == set(way[:3])
    assert graph.lookup(way[2], call("ls"), 30.0) is not None
    graph.forget_task("beta")
    assert listed(graph) == {root}


def test_a_root_goes_with_its_only_task(graph: Graph) -> None:
    root, other = add_root(graph), add_root(graph, salt="other")
    graph.begin_rollout(task="alpha", image="terminal", root=root)
    graph.begin_rollout(task="alpha", image="terminal", root=other)
    graph.begin_rollout(task="beta", image="terminal", root=other)
    walk(graph, root, "a", task="alpha")
    graph.add_snapshot(snapshot_of(root))
    done = graph.forget_task("alpha")
    assert (done.states, done.rollouts, len(done.snapshots)) == (2, 2, 1)
    assert listed(graph) == {other}


def test_an_unknown_task_is_not_found(graph: Graph) -> None:
    with pytest.raises(NotFound, match="'gamma'"):
        graph.forget_task("gamma")


def test_a_large_subtree(graph: Graph) -> None:
    root = add_root(graph)
    state = step(graph, root, "start", task="t").next_state
    for chain in range(30):
        below = walk(graph, state, *(f"{chain} {number}" for number in range(50)), task="t")
        graph.record(NewEdge(below[-1], call("private"), result(), next_state=below[-1], shared=False, task="t"))
    assert graph.forget_task("t", dry_run=True).states == 1501
    assert graph.forget(state).edges == 1531
