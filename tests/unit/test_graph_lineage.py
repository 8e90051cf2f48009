"""Descent, snapshots, names and the listing of the tree."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.graph_helpers import add_root, call, disorder, look, result, snapshot_of, step, walk
from tvsnap.graph import Graph, NewEdge
from tvsnap.model.calls import next_state
from tvsnap.model.errors import NotFound, UsageError


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph(tmp_path / "tvsnap.db", "tester") as graph:
        yield graph
    assert disorder(tmp_path / "tvsnap.db") == []


def test_a_root_is_added_once(graph: Graph) -> None:
    root = add_root(graph)
    assert add_root(graph) == root
    other = add_root(graph, salt="other")
    assert [info.hash for info in graph.roots()] == [root, other]
    state = graph.state(root)
    assert (state.root, state.parent, state.depth, state.private) == (root, None, 0, None)


def test_lineage_has_the_changing_calls_in_order(graph: Graph) -> None:
    root = add_root(graph)
    look(graph, root, "ls")
    states = walk(graph, root, "a", "b", "c")
    look(graph, states[1], "cat")
    assert [edge.call.arguments["command"] for edge in graph.lineage(states[3])] == ["a", "b", "c"]
    assert graph.lineage(root) == []
    assert graph.state(states[3]).depth == 3
    with pytest.raises(NotFound):
        graph.lineage("ab" * 32)


def test_a_state_is_answered_if_all_calls_that_lead_there_are(graph: Graph) -> None:
    root = add_root(graph)
    states = walk(graph, root, "a", "b", "c")
    assert all(graph.is_answered(state) for state in [root, *states])
    assert not graph.is_answered("ab" * 32)
    graph.mark_nondeterministic(graph.lineage(states[3])[1], "it differs")
    assert [graph.is_answered(state) for state in states] == [True, True, False, False]
    graph.retire(graph.lineage(states[1])[0], "it is old")
    assert [graph.is_answered(state) for state in states] == [True, False, False, False]


def test_edges_and_states_around_a_state(graph: Graph) -> None:
    root = add_root(graph)
    left, right = step(graph, root, "left"), step(graph, root, "right")
    same = look(graph, root, "ls")
    assert graph.out_edges(root) == [left, right, same]
    assert [state.hash for state in graph.children(root)] == [left.next_state, right.next_state]
    assert graph.edge_to(right.next_state) == right
    assert graph.edge_to(root) is None
    assert graph.edge(same.id) == same
    with pytest.raises(NotFound):
        graph.edge(999)
    with pytest.raises(NotFound):
        graph.state("ab" * 32)


def test_the_seconds_ahead_are_those_of_what_usually_follows(graph: Graph) -> None:
    root = add_root(graph)
    assert graph.seconds_ahead(root, 10.0) == 0.0
    first = step(graph, root, "first", duration=1.0).next_state
    step(graph, first, "second", duration=4.0)
    look(graph, first, "test")
    assert graph.seconds_ahead(root, 100.0) == pytest.approx(0.25 * (1.0 + 0.1 + 0.25 * 4.0)), "made once, by chance"
    for edge in graph.out_edges(root):
        for _ in range(98):
            graph.touch_hit(edge, "")
    likely = 1 - 0.5 / 100
    assert graph.seconds_ahead(root, 100.0) == pytest.approx(likely * (1.0 + 0.1 + 0.25 * 4.0)), "not written yet"
    graph.flush()
    assert graph.seconds_ahead(root, 100.0) == pytest.approx(likely * (1.0 + 0.1 + 0.25 * 4.0))
    step(graph, root, "another", duration=100.0)
    assert graph.seconds_ahead(root, 100.0) == pytest.approx((1 - 1.5 / 101) * 0.99 * (1.0 + 0.1 + 0.25 * 4.0))
    assert 0.9 < graph.seconds_ahead(root, 0.5) < 1.0, "that is enough"


def test_the_seconds_ahead_of_a_circle_of_calls_that_answer_nobody(graph: Graph) -> None:
    root = add_root(graph)
    graph.record(
        NewEdge(root, call("a"), result("a"), next_state=next_state(root, call("a"), identity="x"), shared=False)
    )
    assert graph.seconds_ahead(root, 10.0) == 0.0


def test_nearest_snapshot(graph: Graph) -> None:
    root = add_root(graph)
    states = walk(graph, root, "a", "b", "c", "d")

    def nearest(state: str, backend: str = "fake") -> tuple[str | None, list[str]]:
        snapshot, edges = graph.nearest_snapshot(state, backend)
        return snapshot.state if snapshot else None, [edge.call.arguments["command"] for edge in edges]

    assert nearest(states[4]) == (None, ["a", "b", "c", "d"])
    assert nearest(root) == (None, [])
    assert graph.add_snapshot(snapshot_of(states[1]))
    assert graph.add_snapshot(snapshot_of(states[3]))
    assert nearest(states[4]) == (states[3], ["d"])
    assert nearest(states[3]) == (states[3], [])
    assert nearest(states[2]) == (states[1], ["b"])
    assert nearest(root) == (None, [])
    assert nearest(states[4], "docker") == (None, ["a", "b", "c", "d"])
    assert graph.drop_snapshot(states[3], "fake")
    assert nearest(states[4]) == (states[1], ["b", "c", "d"])
    graph.add_snapshot(snapshot_of(root))
    graph.drop_snapshot(states[1], "fake")
    assert nearest(states[4]) == (root, ["a", "b", "c", "d"])
    with pytest.raises(NotFound):
        graph.nearest_snapshot("ab" * 32, "fake")
    with pytest.raises(NotFound):
        graph.distance("ab" * 32, "fake")
    with pytest.raises(NotFound):
        graph.root_of("ab" * 32)


def test_replay_knows_timeouts_and_what_is_not_deterministic(graph: Graph) -> None:
    root = add_root(graph)
    after = next_state(root, call("vim"), timeout=5.0)
    graph.record(NewEdge(root, call("vim"), result("", 5.0, None, timed_out=True), next_state=after, timeout=5.0))
    unsure = step(graph, after, "ps")
    graph.mark_nondeterministic(unsure, "differs")
    _, edges = graph.nearest_snapshot(unsure.next_state, "fake")
    assert [(edge.timeout, edge.deterministic) for edge in edges] == [(5.0, True), (None, False)]


def test_snapshots_are_kept_one_a_state_and_backend(graph: Graph) -> None:
    root = add_root(graph)
    state = step(graph, root, "a").next_state
    mine = snapshot_of(state, "mine", created=1.0)
    assert graph.add_snapshot(mine)
    assert not graph.add_snapshot(snapshot_of(state, "late"))
    assert not graph.add_snapshot(snapshot_of("ab" * 32, "of nothing"))
    other = snapshot_of(state, "other", "docker", created=2.0)
    assert graph.add_snapshot(other)
    assert graph.snapshot(state, "fake") == mine
    assert graph.snapshots() == [mine, other]
    assert graph.snapshots("docker") == [other]
    assert not graph.drop_snapshot(state, "fake", "late")
    assert graph.drop_snapshot(state, "fake", "mine")
    assert not graph.drop_snapshot(state, "fake")
    assert graph.snapshot(state, "fake") is None


def test_resolve(graph: Graph) -> None:
    root = add_root(graph)
    states = walk(graph, root, "a", "b", "c")
    last = states[3]
    assert graph.resolve(last).hash == last
    assert graph.resolve(last[:12].upper()).hash == last
    assert graph.resolve(last[:11]).hash == last
    assert graph.resolve(f"{last[:12]}~").hash == states[2]
    assert graph.resolve(f"{last[:12]}~0").hash == last
    assert graph.resolve(f"{last[:12]}~3").hash == root
    with pytest.raises(NotFound, match="only 3 steps"):
        graph.resolve(f"{last[:12]}~4")
    with pytest.raises(NotFound, match="no state begins with"):
        graph.resolve("0123456789")


@pytest.mark.parametrize("name", ["", "fix-git", "~2", "abcd~x", "abcd~-1", "abc", "a" * 65, "abcd ", "abcd~2~1"])
def test_resolve_refuses_what_is_no_name(graph: Graph, name: str) -> None:
    with pytest.raises(UsageError):
        graph.resolve(name)


def test_resolve_names_the_candidates(graph: Graph) -> None:
    root = add_root(graph)
    names = []
    for number in range(8):
        name = "abcd" + hashlib.sha256(b"%d" % number).hexdigest()[4:]
        graph.record(NewEdge(root, call(str(number)), result(), next_state=name))
        names.append(name)
    with pytest.raises(NotFound) as caught:
        graph.resolve("abcd")
    assert str(caught.value).count("abcd") == 6
    assert ", ...; give more digits" in str(caught.value)
    for name in sorted(names)[:5]:
        assert name[:12] in str(caught.value)
    assert graph.resolve(names[5][:12]).hash == names[5]


def test_resolve_tells_long_twins_apart(graph: Graph) -> None:
    root = add_root(graph)
    for last in "01":
        graph.record(NewEdge(root, call(last), result(), next_state="ab" * 31 + "c" + last))
    with pytest.raises(NotFound, match=r"c0, abab.*c1; give more digits"):
        graph.resolve("abab")


def test_the_tree_lists_states_calls_and_snapshots(graph: Graph) -> None:
    root = add_root(graph)
    first = step(graph, root, "a", task="t")
    second = step(graph, first.next_state, "b", task="t")
    same = look(graph, first.next_state, "ls", task="t")
    graph.add_snapshot(snapshot_of(first.next_state))
    graph.touch_hit(first, "t")
    graph.flush()
    nodes = graph.tree()
    assert [node.state.hash for node in nodes] == [root, first.next_state, second.next_state]
    assert [node.made_by and node.made_by.id for node in nodes] == [None, first.id, second.id]
    assert [[call.id for call in node.unchanging] for node in nodes] == [[], [same.id], []]
    assert [len(node.snapshots) for node in nodes] == [0, 1, 0]
    assert nodes[1].made_by is not None
    assert (nodes[1].made_by.call, nodes[1].made_by.hits) == (call("a"), 1)


def test_the_tree_by_root_image_task_and_depth(graph: Graph) -> None:
    one, two = add_root(graph), add_root(graph, image="sqlite")
    of_one = walk(graph, one, "a", "b", "c", task="alpha")
    of_two = walk(graph, two, "a", "b", task="beta")
    beside = walk(graph, of_one[1], "x", task="beta")

    def listed(**filters: object) -> set[str]:
        nodes = graph.tree(**filters)  # type: ignore[arg-type]
        seen: set[str] = set()
        for node in nodes:
            assert node.state.parent is None or node.state.parent in seen
            seen.add(node.state.hash)
        assert len(seen) == len(nodes)
        return seen

    assert listed() == {*of_one, *of_two, *beside}
    assert listed(root=two) == set(of_two)
    assert listed(image="terminal") == {*of_one, *beside}
    assert listed(task="alpha") == set(of_one)
    # What leads to a visited state is listed, though only the other task is known to have passed there.
    assert listed(task="beta") == {*of_two, one, *beside}
    assert listed(task="beta", image="sqlite") == set(of_two)
    assert listed(depth=1) == {one, two, of_one[1], of_two[1]}
    assert listed(depth=0) == {one, two}
    assert listed(task="beta", depth=1) == {one, two, of_one[1], of_two[1]}
    assert listed(task="gamma") == listed(image="none") == listed(root="ab" * 32) == set()


def test_a_root_without_calls_is_listed_for_the_task_that_started_there(graph: Graph) -> None:
    root = add_root(graph)
    graph.begin_rollout(task="alpha", image="terminal", root=root)
    assert [node.state.hash for node in graph.tree(task="alpha")] == [root]
    assert graph.tree(task="beta") == []


def test_rollouts(graph: Graph) -> None:
    root = add_root(graph)
    state = step(graph, root, "a").next_state
    first = graph.begin_rollout(task="alpha", image="terminal", root=root, label="first")
    second = graph.begin_rollout(task="", image="terminal", root=root)
    assert first.owner == second.owner == "tester"
    assert first.finished is None
    graph.end_rollout(first.id, state)
    graph.flush()
    ended, running = graph.rollouts()
    assert (ended.id, ended.state, ended.label) == (first.id, state, "first")
    assert ended.finished is not None
    assert ended.finished >= ended.started
    assert running == second
    assert graph.rollouts("alpha") == [ended]
    assert graph.tasks() == ["alpha"]
