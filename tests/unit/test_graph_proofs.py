"""Which answers may be given, as far as the graph knows: what is proven, what is retired, and what was waited."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.graph_helpers import add_root, call, disorder, look, result, snapshot_of, step, walk
from tvsnap.graph import PROOF_APART, Edge, Graph, NewEdge
from tvsnap.host.waiting import SLACK, SLACK_S, Wait
from tvsnap.model.calls import next_state

MAKE = call("make")


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph(tmp_path / "tvsnap.db", "tester") as graph:
        yield graph
    assert disorder(tmp_path / "tvsnap.db") == []


class Clock:
    """What the graph takes the time to be."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000.0
        patch.setattr("tvsnap.graph.edges.time.time", lambda: self.now)

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def execute(graph: Graph, state: str, left: str, output: str = "", *, backend: str = "fake", **options: object) -> Edge:
    """Records an execution of `make` that left `left` behind; its digest is known, unless `left` begins with `?`."""
    known = not left.startswith("?")
    return graph.record(
        NewEdge(
            state,
            MAKE,
            result(output),
            next_state=next_state(state, MAKE, identity=left),
            digest=left if known else None,
            comparable=known,
            backend=backend,
            **options,  # type: ignore[arg-type]
        )
    )


def answer(graph: Graph, state: str, backend: str = "fake") -> str | None:
    """Returns where the answer to `make` leads."""
    edge = graph.lookup(state, MAKE, 30.0, backend)
    return None if edge is None else edge.next_state


def test_what_nothing_keeps_answers_nothing(graph: Graph) -> None:
    root = add_root(graph)
    edge = execute(graph, root, "a")
    assert (edge.shared, edge.deterministic, edge.proven, edge.reason) == (True, True, False, None)
    assert answer(graph, root) is None
    assert graph.recorded(root, MAKE) == edge


def test_what_has_a_snapshot_answers_while_it_has_one(graph: Graph) -> None:
    root = add_root(graph)
    edge = execute(graph, root, "a")
    graph.add_snapshot(snapshot_of(edge.next_state))
    assert answer(graph, root) == edge.next_state
    assert answer(graph, root, "docker") is None, "another backend cannot fork it"
    assert answer(graph, root, "") is None
    graph.drop_snapshot(edge.next_state, "fake")
    assert answer(graph, root) is None


def test_what_changed_nothing_always_answers(graph: Graph) -> None:
    root = add_root(graph)
    look(graph, root, "make")
    assert answer(graph, root) == root


def test_what_is_reproducible_by_nature_answers_without_a_snapshot(graph: Graph) -> None:
    root = add_root(graph)
    edge = execute(graph, root, "", proven=True)
    assert edge.proven
    assert answer(graph, root) == edge.next_state


def test_two_executions_that_leave_the_same_behind_are_a_proof(graph: Graph, clock: Clock) -> None:
    root = add_root(graph)
    first = execute(graph, root, "a", "now")
    clock.advance(PROOF_APART)
    second = execute(graph, root, "a", "later")
    assert (second.id, second.proven, second.result.output) == (first.id, True, "now")
    assert answer(graph, root) == first.next_state
    assert answer(graph, root, "docker") == first.next_state


def test_two_at_the_same_moment_are_none(graph: Graph, clock: Clock) -> None:
    """What shows the clock is the same within a moment."""
    root = add_root(graph)
    execute(graph, root, "a")
    clock.advance(PROOF_APART - 0.1)
    assert not execute(graph, root, "a").proven
    assert answer(graph, root) is None
    clock.advance(0.1)
    assert execute(graph, root, "a").proven


def test_a_clock_that_was_set_back_proves_nothing(graph: Graph, clock: Clock) -> None:
    root = add_root(graph)
    execute(graph, root, "a")
    clock.advance(-3600.0)
    assert not execute(graph, root, "a").proven


def test_what_cannot_be_compared_is_never_proven(graph: Graph, clock: Clock) -> None:
    root = add_root(graph)
    for number in range(3):
        assert not execute(graph, root, f"? {number}").proven
        clock.advance(PROOF_APART)
    assert answer(graph, root) is None


def test_what_could_not_be_kept_is_retired_by_the_next_execution(graph: Graph, clock: Clock) -> None:
    root = add_root(graph)
    first = execute(graph, root, "a", "one")
    below = step(graph, first.next_state, "ls").next_state
    clock.advance(PROOF_APART)
    second = execute(graph, root, "b", "two")
    assert second.id != first.id
    assert graph.recorded(root, MAKE) == second
    retired = graph.edge(first.id)
    assert (retired.shared, retired.result.output) == (False, "one")
    assert retired.reason == "what it led to could not be kept, and the call was made anew since"
    # It stays for those who stand on it, and for people.
    assert graph.lineage(below)[0].id == first.id
    assert graph.state(first.next_state).private is None
    graph.add_snapshot(snapshot_of(first.next_state))
    assert answer(graph, root) is None
    graph.add_snapshot(snapshot_of(second.next_state))
    assert answer(graph, root) == second.next_state


def test_what_is_kept_is_not_retired(graph: Graph) -> None:
    """One who executes the call all the same, as it took longer than he waits, goes on in a private branch."""
    root = add_root(graph)
    first = execute(graph, root, "a")
    graph.add_snapshot(snapshot_of(first.next_state))
    assert execute(graph, root, "b").id == first.id
    assert [edge.id for edge in graph.out_edges(root)] == [first.id]
    assert execute(graph, root, "c", backend="docker").id != first.id, "which has no snapshot of it"


def test_what_was_retired_answers_again_when_it_comes_again(graph: Graph, clock: Clock) -> None:
    root = add_root(graph)
    first = execute(graph, root, "a", "one")
    clock.advance(PROOF_APART)
    second = execute(graph, root, "b", "two")
    clock.advance(PROOF_APART)
    again = execute(graph, root, "a", "three")
    assert (again.id, again.next_state, again.shared, again.reason) == (first.id, first.next_state, True, None)
    assert not graph.edge(second.id).shared
    graph.add_snapshot(snapshot_of(first.next_state))
    found = graph.lookup(root, MAKE, 30.0, "fake")
    assert found is not None
    assert (found.id, found.result.output) == (first.id, "three")


def test_a_call_seen_to_lead_elsewhere_is_never_proven(graph: Graph, clock: Clock) -> None:
    """Heads, tails, heads is no proof, nor is heads after that."""
    root = add_root(graph)
    for left in ("heads", "tails", "heads", "heads", "tails", "tails"):
        assert not execute(graph, root, left).proven
        assert answer(graph, root) is None
        clock.advance(PROOF_APART)
    edge = graph.recorded(root, MAKE)
    assert edge is not None
    graph.prove(edge)
    assert not graph.edge(edge.id).proven, "whoever found it to hold this time"


def test_a_proof_is_void_once_the_call_is_seen_to_lead_elsewhere(graph: Graph, clock: Clock) -> None:
    root = add_root(graph)
    first = execute(graph, root, "heads")
    clock.advance(PROOF_APART)
    assert execute(graph, root, "heads").proven
    second = execute(graph, root, "tails")
    assert second.next_state != first.next_state
    assert not graph.edge(first.id).proven
    assert answer(graph, root) is None


def test_a_proof_that_is_void_leaves_what_has_a_snapshot(graph: Graph, clock: Clock) -> None:
    root = add_root(graph)
    first = execute(graph, root, "heads")
    graph.add_snapshot(snapshot_of(first.next_state))
    clock.advance(PROOF_APART)
    assert execute(graph, root, "heads").proven
    assert execute(graph, root, "tails").id == first.id
    assert not graph.edge(first.id).proven
    assert answer(graph, root) == first.next_state


def test_what_was_marked_stays_so(graph: Graph, clock: Clock) -> None:
    root = add_root(graph)
    edge = execute(graph, root, "a", proven=True)
    graph.mark_nondeterministic(edge, "a replay left something else behind")
    assert answer(graph, root) is None
    clock.advance(PROOF_APART)
    again = execute(graph, root, "b")
    assert (again.id, again.deterministic) == (edge.id, False)


def test_a_replay_can_prove(graph: Graph) -> None:
    root = add_root(graph)
    edge = execute(graph, root, "a")
    graph.prove(edge)
    assert graph.edge(edge.id).proven
    assert answer(graph, root) == edge.next_state


def damage(path: Path, edge: Edge) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE edges SET output = 'something else' WHERE id = ?", (edge.id,))
    connection.close()


@pytest.mark.parametrize("left", ["a", "b"])
def test_what_is_damaged_is_recorded_anew(graph: Graph, tmp_path: Path, left: str) -> None:
    """Where it leads elsewhere this time, what followed from the damaged one still follows from that."""
    root = add_root(graph)
    first = execute(graph, root, "a", "one")
    graph.add_snapshot(snapshot_of(first.next_state))
    below = walk(graph, first.next_state, "x", "y")[-1]
    damage(graph.path, first)
    assert answer(graph, root) is None
    second = execute(graph, root, left, "two")
    graph.add_snapshot(snapshot_of(second.next_state))
    found = graph.lookup(root, MAKE, 30.0, "fake")
    assert found is not None
    assert (found.result.output, found.next_state) == ("two", second.next_state)
    assert (second.next_state == first.next_state) is (left == "a")
    assert [edge.state for edge in graph.lineage(below)] == [root, first.next_state, graph.state(below).parent]
    assert graph.lineage(below)[0].next_state == first.next_state
    assert all(edge.call == MAKE for edge in graph.out_edges(root))


class TestWaiting:
    """Lookups where something runs by itself."""

    def poll(self, graph: Graph, state: str, waited: float, output: str, duration: float = 0.1) -> Edge:
        return graph.record(NewEdge(state, call("cat f"), result(output, duration), next_state=state, waited=waited))

    def ask(self, graph: Graph, state: str, waited: float, quiet_s: float = 0.0, timeout: float = 30.0) -> str | None:
        edge = graph.lookup(state, call("cat f"), timeout, "fake", wait=Wait(waited), quiet_s=quiet_s)
        return None if edge is None else edge.result.output

    def test_an_answer_serves_who_waited_about_as_long(self, graph: Graph) -> None:
        root = add_root(graph)
        self.poll(graph, root, 10.0, "at 10")
        slack = SLACK_S + SLACK * 10.0
        for waited, found in (
            (10.0, "at 10"),
            (10.0 - slack / 2, "at 10"),
            (10.0 + slack / 2, "at 10"),
            (8.0, None),
            (12.0, None),
            (0.001, None),
            (3600.0, None),
        ):
            assert self.ask(graph, root, waited) == found, waited

    def test_an_answer_of_a_longer_wait_is_due_before_an_execution_would_end(self, graph: Graph) -> None:
        root = add_root(graph)
        self.poll(graph, root, 30.0, "at 30", duration=10.0)
        for waited, due in ((30.0, None), (26.0, 0.36), (20.0, 6.36), (17.0, 9.36), (16.0, None), (40.0, None)):
            found = graph.due_in(root, call("cat f"), 30.0, "fake", Wait(waited))
            assert found == (due if due is None else pytest.approx(due, abs=0.01)), waited
            if found is not None:
                assert self.ask(graph, root, waited) is None
                assert self.ask(graph, root, waited + found + 1e-6) == "at 30"
        assert graph.due_in(root, call("cat f"), 9.0, "fake", Wait(26.0)) is None, "it took longer than the timeout is"

    def test_the_nearest_wait_counts(self, graph: Graph) -> None:
        root = add_root(graph)
        for waited in (10.0, 10.5, 11.0):
            self.poll(graph, root, waited, f"at {waited}")
        assert self.ask(graph, root, 10.4) == "at 10.5"
        assert self.ask(graph, root, 10.9) == "at 11.0"
        assert self.ask(graph, root, 9.9) == "at 10.0"

    def test_where_time_does_not_count_no_answer_of_a_wait_is_given(self, graph: Graph) -> None:
        root = add_root(graph)
        self.poll(graph, root, 10.0, "at 10")
        assert self.ask(graph, root, 0.0, math.inf) is None
        self.poll(graph, root, 0.0, "always")
        assert self.ask(graph, root, 0.0, math.inf) == "always"

    def test_while_it_is_quiet_time_does_not_count(self, graph: Graph) -> None:
        """If the call is over by then, as it was over then."""
        root = add_root(graph)
        self.poll(graph, root, 0.0, "quiet", duration=2.0)
        assert self.ask(graph, root, 0.0, 10.0) == "quiet"
        assert self.ask(graph, root, 8.0, 10.0) == "quiet"
        assert self.ask(graph, root, 8.1, 10.0) is None, "it would end after that"
        assert self.ask(graph, root, 11.0, 10.0) is None

    def test_a_wait_recorded_beside_a_quiet_answer(self, graph: Graph) -> None:
        root = add_root(graph)
        self.poll(graph, root, 0.0, "quiet")
        self.poll(graph, root, 20.0, "at 20")
        assert self.ask(graph, root, 1.0, 10.0) == "quiet"
        assert self.ask(graph, root, 15.0, 10.0) is None
        assert self.ask(graph, root, 20.5, 10.0) == "at 20"

    def test_the_timeout_counts_as_ever(self, graph: Graph) -> None:
        root = add_root(graph)
        self.poll(graph, root, 10.0, "at 10", duration=5.0)
        assert self.ask(graph, root, 10.0, timeout=4.0) is None
        assert self.ask(graph, root, 10.0, timeout=5.0) == "at 10"

    def test_what_was_waited_is_kept_with_an_edge(self, graph: Graph) -> None:
        root = add_root(graph)
        state = next_state(root, MAKE, identity="a after 2.5 s")
        edge = graph.record(
            NewEdge(root, MAKE, result(), next_state=state, waited=2.5, quiet_s=0.5, active="process 7 runs")
        )
        assert (edge.waited, edge.quiet_s, edge.active) == (2.5, 0.5, "process 7 runs")
        assert graph.edge(edge.id) == graph.edge_to(state) == edge
        (_, node) = graph.tree()
        assert node.made_by is not None
        assert (node.made_by.waited, node.made_by.active, node.made_by.proven) == (2.5, "process 7 runs", False)
        graph.add_snapshot(snapshot_of(state))
        found = graph.lookup(root, MAKE, 30.0, "fake", wait=Wait(2.4), quiet_s=0.0)
        assert found == edge
        forever = look(graph, root, "ls")
        assert graph.edge(forever.id).quiet_s == math.inf

    def test_each_wait_is_recorded(self, graph: Graph) -> None:
        root = add_root(graph)
        edges = [self.poll(graph, root, waited, str(waited)) for waited in (0.0, 1.0, 1.0, 2.0)]
        assert [edge.result.output for edge in edges] == ["0.0", "1.0", "1.0", "2.0"]
        assert len({edge.id for edge in edges}) == 3
        recorded = graph.recorded(root, call("cat f"))
        assert recorded is not None
        assert recorded.waited == 2.0
