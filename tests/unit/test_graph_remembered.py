"""What a graph gives again without reading its file, and what is written to that together."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.graph_helpers import add_root, call, look, result, snapshot_of, step
from tvsnap.graph import Edge, Graph, NewEdge
from tvsnap.host import database
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import NotFound, UsageError


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """An empty graph."""
    with Graph(tmp_path / "graph.db") as opened:
        yield opened


def answer(graph: Graph, state: str, command: str) -> Edge | None:
    """Looks an answer up, as each hit does."""
    return graph.lookup(state, call(command), 30.0, "fake")


class Counting:
    """Reads a record, and counts how often it was asked to."""

    def __init__(self, graph: Graph, state: str, command: str) -> None:
        self.count = 0
        self._wanted: tuple[Graph, str, ToolCall] = (graph, state, call(command))

    def __call__(self) -> Edge | None:
        graph, state, made = self._wanted
        self.count += 1
        return graph.recorded(state, made)

    def asked(self) -> Edge | None:
        """Returns the record."""
        return self._wanted[0].answered("key", self)


def test_an_answer_is_read_once_while_only_others_are_added(graph: Graph) -> None:
    root = add_root(graph)
    look(graph, root, "ls", "a\n")
    reading = Counting(graph, root, "ls")
    for number in range(3):
        found = reading.asked()
        assert found is not None
        assert found.result.output == "a\n"
        graph.touch_hit(found, "task")
        graph.flush()
        step(graph, root, f"touch {number}")
    assert reading.count == 1


def test_none_is_not_remembered(graph: Graph) -> None:
    root = add_root(graph)
    reading = Counting(graph, root, "ls")
    assert reading.asked() is None
    look(graph, root, "ls")
    assert reading.asked() is not None
    assert reading.count == 2


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_is_altered_is_read_anew(graph: Graph, elsewhere: bool) -> None:
    root = add_root(graph)
    varying, changing = look(graph, root, "date"), step(graph, root, "make")
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(Graph(graph.path)) if elsewhere else graph
        assert answer(graph, root, "date") is not None
        other.mark_nondeterministic(varying, "another time")
        assert answer(graph, root, "date") is None
        assert answer(graph, root, "make") is not None
        other.retire(changing, "too old")
        assert answer(graph, root, "make") is None
        look(graph, root, "ls")
        assert answer(graph, root, "ls") is not None
        other.forget(root)
        assert answer(graph, root, "ls") is None


def test_an_answer_ends_with_the_snapshot_that_it_needs(graph: Graph) -> None:
    root, made = add_root(graph), call("make")
    after = "a" * 64
    graph.record(NewEdge(root, made, result(), next_state=after))
    snapshot = snapshot_of(after)
    graph.add_snapshot(snapshot)
    assert answer(graph, root, "make") is not None
    graph.drop_snapshot(after, "fake")
    assert answer(graph, root, "make") is None


def test_another_process_that_writes_has_all_read_anew(graph: Graph) -> None:
    root = add_root(graph)
    look(graph, root, "ls")
    reading = Counting(graph, root, "ls")
    with Graph(graph.path) as other:
        reading.asked()
        look(other, root, "pwd")
        reading.asked()
    assert reading.count == 2


def test_sqlite_is_asked_for_others_only_once_somebody_has_written(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[None] = []
    ask = database._data_version

    def counted(writer: sqlite3.Connection) -> int:
        asked.append(None)
        return ask(writer)

    monkeypatch.setattr(database, "_data_version", counted)
    root = add_root(graph)
    made = look(graph, root, "ls")
    for _ in range(3):
        assert answer(graph, root, "ls") is not None
    assert len(asked) == 1
    statement = f"UPDATE edges SET deterministic = 0 WHERE id = {made.id}"
    write = "import sqlite3, sys; sqlite3.connect(sys.argv[1], isolation_level=None).execute(sys.argv[2])"
    subprocess.run([sys.executable, "-c", write, str(graph.path), statement], check=True)
    assert answer(graph, root, "ls") is None
    assert len(asked) == 2


def test_the_oldest_are_forgotten_first(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvsnap.graph.answers.MOST_REMEMBERED", 20_000)
    root = add_root(graph)
    for number in range(3):
        look(graph, root, f"cat {number}", "x" * 7000)
    readings = [Counting(graph, root, f"cat {number}") for number in range(3)]
    for number, reading in enumerate(readings):
        graph.answered(number, reading)
    for number, reading in enumerate(readings[1:], 1):
        graph.answered(number, reading)
    assert [reading.count for reading in readings] == [1, 1, 1]
    graph.answered(0, readings[0])
    assert readings[0].count == 2


def test_what_is_recorded_together_is_written_at_once(graph: Graph) -> None:
    root = add_root(graph)
    with Graph(graph.path) as other:
        with graph.together():
            made = step(graph, root, "make")
            assert graph.recorded(root, call("make")) is not None  # what its thread has written, it reads
            look(graph, made.next_state, "ls")
            assert other.recorded(root, call("make")) is None
        assert other.recorded(root, call("make")) is not None
        assert other.recorded(made.next_state, call("ls")) is not None


def test_one_that_cannot_be_recorded_leaves_the_others(graph: Graph) -> None:
    root = add_root(graph)
    with graph.together():
        look(graph, root, "ls")
        with pytest.raises(NotFound):
            look(graph, "b" * 64, "ls")
        made = step(graph, root, "make")
        with pytest.raises(UsageError):
            graph.record(NewEdge(root, call("other"), result(), next_state=made.next_state))
        look(graph, root, "pwd")
    assert [edge.call.arguments["command"] for edge in graph.out_edges(root)] == ["ls", "make", "pwd"]


def test_of_a_block_that_fails_nothing_is_recorded(graph: Graph) -> None:
    root = add_root(graph)

    def fail() -> None:
        with graph.together():
            look(graph, root, "ls")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert answer(graph, root, "ls") is None
    look(graph, root, "ls")
    assert answer(graph, root, "ls") is not None


def test_other_threads_read_and_record_beside_a_block(graph: Graph) -> None:
    root = add_root(graph)
    found: list[Edge | None] = []

    def beside() -> None:
        found.append(answer(graph, root, "ls"))
        look(graph, root, "pwd")  # waits for the block's end
        graph.flush()

    with graph.together():
        edge = look(graph, root, "ls")
        graph.touch_hit(edge, "task")
        thread = threading.Thread(target=beside)
        thread.start()
        while not found:
            thread.join(0.01)
        graph.flush()
    thread.join()
    assert found == [None]
    assert answer(graph, root, "pwd") is not None
