"""Calls that one graph takes over from another: what is known stays, what led elsewhere is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.graph_helpers import add_root, call, disorder, look, result, step, walk
from tvsnap.graph import Graph, NewEdge, root_from_json, root_to_json
from tvsnap.model.calls import next_state
from tvsnap.model.errors import InfrastructureError

ALIVE = {"owner": "me", "is_alive": lambda owner: True}


@pytest.fixture
def graphs(tmp_path: Path) -> Iterator[tuple[Graph, Graph]]:
    with Graph(tmp_path / "one.db") as one, Graph(tmp_path / "two.db") as two:
        yield one, two
    assert disorder(tmp_path / "two.db") == []


def _taken(one: Graph, two: Graph, **which: Any) -> dict[str, int]:
    counts = {"added": 0, "known": 0, "conflicting": 0}
    for root, rows in json.loads(json.dumps(one.portable(**which))).items():
        info = root_from_json(json.loads(json.dumps(root_to_json(one.root_of(root)))))
        adopted = two.adopt(info, rows, task=which.get("task") or "")
        counts = {name: counts[name] + getattr(adopted, name) for name in counts}
    return counts


def _answers(graph: Graph, state: str, command: str) -> str | None:
    found = graph.lookup(state, call(command), 30.0, "local")
    return None if found is None else found.result.output


def test_a_task_is_taken_over(graphs: tuple[Graph, Graph]) -> None:
    one, two = graphs
    root = add_root(one)
    states = walk(one, root, "a", "b", "c", task="t")
    look(one, states[3], "ls", "seen \ud800 \0 " + "long " * 5000, task="t")
    other = step(one, states[1], "other", task="another").next_state
    assert _taken(one, two, task="t") == {"added": 4, "known": 0, "conflicting": 0}
    assert two.tasks() == ["t"]
    for state, command in ((root, "a"), (states[1], "b"), (states[2], "c"), (states[3], "ls")):
        assert _answers(two, state, command) == _answers(one, state, command) is not None
    assert two.lookup(states[1], call("other"), 30.0, "local") is None
    assert [edge.call for edge in two.lineage(states[3])] == [call("a"), call("b"), call("c")]
    assert _taken(one, two, task="t") == {"added": 0, "known": 4, "conflicting": 0}
    assert _taken(one, two, task="another") == {"added": 1, "known": 1, "conflicting": 0}
    assert two.state(other).depth == 2


def test_a_state_is_taken_over_with_what_leads_there_and_follows(graphs: tuple[Graph, Graph]) -> None:
    one, two = graphs
    root = add_root(one)
    states = walk(one, root, "a", "b", "c", "d", task="t")
    step(one, states[1], "beside", task="t")
    step(one, states[3], "behind", task="t")
    assert _taken(one, two, state=states[2])["added"] == 5
    assert two.lookup(states[1], call("beside"), 30.0, "local") is None
    assert two.lookup(states[3], call("behind"), 30.0, "local") is not None


def test_private_branches_stay(graphs: tuple[Graph, Graph]) -> None:
    one, two = graphs
    root = add_root(one)
    made = call("private")
    after = next_state(root, made)
    one.record(NewEdge(root, made, result(), next_state=after, task="t", shared=False, private="asked for"))
    look(one, root, "ls", task="t")
    assert _taken(one, two, task="t") == {"added": 1, "known": 0, "conflicting": 0}


def test_what_led_elsewhere_here_stays_and_what_lies_behind_it_there_is_left_out(graphs: tuple[Graph, Graph]) -> None:
    one, two = graphs
    root = add_root(one)
    add_root(two)
    made = call("date > f")
    theirs, mine = (next_state(root, made, identity=name) for name in ("theirs", "mine"))
    one.record(NewEdge(root, made, result("theirs"), next_state=theirs, task="t", proven=True))
    step(one, theirs, "cat f", "theirs", task="t")
    step(one, root, "other", task="t")
    two.record(NewEdge(root, made, result("mine"), next_state=mine, task="t", proven=True))
    assert _taken(one, two, task="t") == {"added": 1, "known": 0, "conflicting": 2}
    assert _answers(two, root, "date > f") == "mine"
    assert two.lookup(mine, call("cat f"), 30.0, "local") is None
    assert _answers(two, root, "other") is not None


def test_what_is_no_answer_there_is_none_here(graphs: tuple[Graph, Graph]) -> None:
    one, two = graphs
    root = add_root(one)
    look(one, root, "random", "1", task="t")
    assert _taken(one, two, task="t")["added"] == 1
    assert _answers(two, root, "random") == "1"
    found = one.recorded(root, call("random"))
    assert found is not None
    one.mark_nondeterministic(found, "it returned 2")
    assert _taken(one, two, task="t")["known"] == 1
    assert two.lookup(root, call("random"), 30.0, "local") is None
    (there,) = two.out_edges(root)
    assert (there.deterministic, there.reason) == (False, "it returned 2")


def test_a_proof_travels(graphs: tuple[Graph, Graph]) -> None:
    one, two = graphs
    root = add_root(one)
    add_root(two)
    made = call("a")
    after = next_state(root, made)
    two.record(NewEdge(root, made, result(), next_state=after, task="t"))
    assert two.lookup(root, made, 30.0, "local") is None, "it is neither proven nor kept"
    step(one, root, "a", task="t")
    assert _taken(one, two, task="t")["known"] == 1
    assert two.lookup(root, made, 30.0, "local") is not None


@pytest.mark.parametrize("damage", ["duration", "output", "state", "short", "type"])
def test_calls_that_make_no_sense_are_refused_as_a_whole(graphs: tuple[Graph, Graph], damage: str) -> None:
    one, two = graphs
    root = add_root(one)
    states = walk(one, root, "a", "b", task="t")
    rows = json.loads(json.dumps(one.portable(task="t")))[root]
    last = rows[-1]
    if damage == "duration":
        last[7] = 99.0
    elif damage == "output":
        last[12] = "another output"
    elif damage == "state":
        last[4] = {"b": "!!"}
    elif damage == "short":
        last.pop()
    else:
        last[0] = 7
    with pytest.raises(InfrastructureError, match="make no sense"):
        two.adopt(one.root_of(root), rows, task="t")
    assert two.lookup(root, call("a"), 30.0, "local") is None
    assert not two.tasks()
    with pytest.raises(InfrastructureError, match="root from elsewhere"):
        root_from_json({"hash": "x"})
    assert states
