"""The outline of a graph, which is read without texts, and what is searched in these."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.graph_helpers import add_root, call, look, result, snapshot_of, step, walk
from tvsnap import ToolCall, UsageError
from tvsnap.graph import Graph, NewEdge
from tvsnap.model.calls import next_state

LONG = "x" * 10_000


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph(tmp_path / "graph.db") as opened:
        yield opened


def test_an_outline_has_what_the_tree_has(graph: Graph) -> None:
    root = add_root(graph)
    states = walk(graph, root, "a", "b")
    look(graph, states[1], "ls")
    failing = call("false")
    private = next_state(root, failing)
    graph.record(NewEdge(root, failing, result("", 0.1, 3), next_state=private, private="it failed", shared=False))
    graph.add_snapshot(snapshot_of(states[2]))
    found = graph.outline()
    nodes = {node.state.hash: node for node in graph.tree()}
    assert [(one.state, one.next_state) for one in found] == [
        (root, states[1]),
        (states[1], states[2]),
        (states[1], None),
        (root, private),
    ]
    assert [one.exit_code for one in found] == [0, 0, 0, 3]
    assert [one.kept for one in found] == [False, True, False, False]
    assert [one.private for one in found] == [False, False, False, True]
    assert [one.served for one in found] == [True, True, True, False]
    for one in found:
        if one.next_state is not None:
            made_by = nodes[one.next_state].made_by
            assert made_by is not None
            assert (one.id, one.duration, one.proven) == (made_by.id, made_by.result.duration, made_by.proven)


def test_an_outline_is_read_in_parts_and_below_some_roots(graph: Graph) -> None:
    ids: dict[str, list[int]] = {"a: 1": [], "a: 2": [], "b: 1": []}
    roots = {salt: add_root(graph, salt) for salt in ids}
    for command in ("one", "two", "three"):
        for salt, root in roots.items():
            ids[salt].append(step(graph, root, command, "output").id)
    everything = sorted(id for some in ids.values() for id in some)
    assert [one.id for one in graph.outline(after=everything[1], limit=3)] == everything[2:5]
    assert graph.outline(after=everything[-1]) == []
    of_a = sorted(ids["a: 1"] + ids["a: 2"])
    assert [one.id for one in graph.outline(salt_prefix="a: ")] == of_a
    assert [one.id for one in graph.outline(salt_prefix="a: ", after=of_a[0], limit=2)] == of_a[1:3]
    assert {edge.id for edge in graph.listed(everything, salt_prefix="b: ")} == set(ids["b: 1"])
    assert graph.matching(salt_prefix="a: ") == set(of_a)
    assert graph.matching(salt_prefix="b: ", text="output") == set(ids["b: 1"])
    assert graph.matching(salt_prefix="c: ") == set()


def test_an_outline_of_a_task_and_below_a_root(graph: Graph) -> None:
    one, other = add_root(graph, "one"), add_root(graph, "other")
    begun = step(graph, one, "begin", task="first")
    second = step(graph, begun.next_state, "go on", task="second")
    looked = look(graph, begun.next_state, "look", task="first")
    elsewhere = step(graph, other, "begin", task="second")

    def ids(**chosen: Any) -> list[int]:
        return [call.id for call in graph.outline(**chosen)]

    assert ids(task="first") == [begun.id, looked.id]
    assert ids(task="second") == [begun.id, second.id, elsewhere.id]
    assert ids(root=one) == [begun.id, second.id, looked.id]
    assert ids(root=other, task="second", after=second.id, limit=5) == [elsewhere.id]
    assert ids(root=other, task="first") == ids(task="nobody") == []
    with pytest.raises(UsageError, match="is no state"):
        graph.outline(root="one")


def test_calls_are_listed_without_their_outputs(graph: Graph) -> None:
    made = step(graph, add_root(graph), "echo hello", "hello")
    (listed,) = graph.listed([made.id, made.id + 1])
    assert listed.call == made.call
    assert listed.result.output == ""
    assert graph.listed([]) == []


@pytest.mark.parametrize("padding", ["", LONG], ids=["plain", "compressed"])
def test_texts_are_searched_in_calls_and_outputs(graph: Graph, padding: str) -> None:
    root = add_root(graph)
    one = step(graph, root, f"grep 'Needle' {padding}", "nothing", task="a")
    two = step(graph, one.next_state, "cat file", f'a "NEEDLE"\\ and\nmore {padding}', task="b")
    other = graph.record(
        NewEdge(root, ToolCall("python", {"code": "1"}), result(f"1{padding}"), next_state=root, task="a")
    )
    both = {one.id, two.id}
    assert graph.matching(text="needle") == both
    assert graph.matching(text='"needle"\\ and') == {two.id}
    assert graph.matching(text="grep 'needle") == {one.id}
    assert graph.matching(tool="bash") == both
    assert graph.matching(tool="python") == {other.id}
    assert graph.matching(task="a") == {one.id, other.id}
    assert graph.matching(task="a", text="needle") == {one.id}
    assert graph.matching(task="c") == set()
    assert graph.matching() == {*both, other.id}
    with pytest.raises(UsageError, match="text"):
        graph.matching(text=3)  # type: ignore[arg-type]
