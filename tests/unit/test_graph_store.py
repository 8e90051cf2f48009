"""Recording calls and looking them up."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.caches import eventually
from tests.unit.graph_helpers import add_root, call, claim, disorder, look, result, snapshot_of, step, walk
from tvsnap.graph import Graph, NewEdge, pending
from tvsnap.model.calls import Part, ToolResult, next_state
from tvsnap.model.errors import InfrastructureError, NotFound, UsageError


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph(tmp_path / "tvsnap.db", "tester") as graph:
        yield graph
    assert disorder(tmp_path / "tvsnap.db") == []


def test_a_recorded_call_is_found_with_all_it_returned(graph: Graph) -> None:
    root = add_root(graph)
    returned = ToolResult.of_text("out\n", 3, 1.5, truncated=True)
    edge = graph.record(NewEdge(root, call("make"), returned, next_state=root, digest="d", active="x"))
    found = graph.lookup(root, call("make"), 30.0)
    assert found == edge
    assert found is not None
    assert found.result == returned.from_source("hit")
    assert (found.digest, found.active, found.refusals) == ("d", "x", {})
    assert (found.changed, found.shared, found.deterministic, found.reason) == (False, True, True, None)


def test_what_was_not_recorded_is_not_found(graph: Graph) -> None:
    root = add_root(graph)
    after = step(graph, root, "cd /app").next_state
    assert graph.lookup(root, call("ls"), 30.0) is None
    assert graph.lookup(after, call("cd /app"), 30.0) is None
    assert graph.lookup("ab" * 32, call("cd /app"), 30.0) is None


def test_calls_that_change_nothing_meet_in_any_order(graph: Graph) -> None:
    root = add_root(graph)
    look(graph, root, "ls")
    look(graph, root, "cat a")
    first = graph.lookup(root, call("cat a"), 30.0)
    assert first is not None
    assert graph.lookup(first.next_state, call("ls"), 30.0) is not None


def test_a_hit_needs_a_timeout_of_at_least_the_duration(graph: Graph) -> None:
    root = add_root(graph)
    step(graph, root, "make", duration=10.0)
    assert graph.lookup(root, call("make"), 9.9) is None
    assert graph.lookup(root, call("make"), 10.0) is not None
    recorded = graph.recorded(root, call("make"))
    assert recorded is not None
    assert recorded.result.duration == 10.0


def test_a_blocked_call_answers_exactly_its_timeout(graph: Graph) -> None:
    root = add_root(graph)
    vim = call("vim")
    for timeout in (5.0, 20.0):
        after = next_state(root, vim, timeout=timeout)
        waited = result("", timeout, None, timed_out=True)
        graph.record(NewEdge(root, vim, waited, next_state=after, timeout=timeout, proven=True))
    for timeout in (5.0, 20.0):
        found = graph.lookup(root, vim, timeout)
        assert found is not None
        assert (found.timeout, found.result.timed_out, found.result.blocked) == (timeout, True, True)
        assert found.next_state == next_state(root, vim, timeout=timeout)
    assert graph.lookup(root, vim, 10.0) is None
    assert graph.recorded(root, vim) is None
    assert graph.recorded(root, vim, 20.0) is not None


def test_a_complete_result_and_a_blocked_one_of_the_same_call(graph: Graph) -> None:
    root = add_root(graph)
    slow = call("sleep 8")
    graph.record(NewEdge(root, slow, result("", 5.0, None, timed_out=True), next_state=root, timeout=5.0))
    graph.record(NewEdge(root, slow, result("done", 8.0), next_state=root))
    answers = {timeout: graph.lookup(root, slow, timeout) for timeout in (4.0, 5.0, 6.0, 8.0, 9.0)}
    outputs = {timeout: found and found.result.output for timeout, found in answers.items()}
    assert outputs == {4.0: None, 5.0: "", 6.0: None, 8.0: "done", 9.0: "done"}


def test_a_timeout_is_not_shared_without_being_part_of_the_key(graph: Graph) -> None:
    root = add_root(graph)
    with pytest.raises(UsageError, match="only with its timeout"):
        graph.record(NewEdge(root, call("make"), result("", 5.0, None, timed_out=True), next_state=root))
    with pytest.raises(UsageError, match="more than 0"):
        graph.record(NewEdge(root, call("make"), result("", 5.0, None, timed_out=True), next_state=root, timeout=0.0))


def test_what_is_not_shared_is_kept_but_never_found(graph: Graph) -> None:
    root = add_root(graph)
    states = []
    for number in range(3):
        after = next_state(root, call("date"), identity=str(number))
        states.append(after)
        edge = graph.record(
            NewEdge(
                root,
                call("date"),
                result(str(number)),
                next_state=after,
                shared=False,
                reason="stochastic",
                private="date",
            )
        )
        assert (edge.shared, edge.reason, edge.result.output) == (False, "stochastic", str(number))
    assert graph.lookup(root, call("date"), 30.0) is None
    assert graph.recorded(root, call("date")) is None
    assert [edge.next_state for edge in graph.out_edges(root)] == states
    assert [graph.state(state).private for state in states] == ["date"] * 3


def test_below_a_private_state_all_is_private(graph: Graph) -> None:
    root = add_root(graph)
    private = next_state(root, call("make"), identity="n")
    late = result("", 5.0, None, timed_out=True)
    graph.record(NewEdge(root, call("make"), late, next_state=private, shared=False, private="timed out"))
    assert graph.state(walk(graph, private, "a", "b")[-1]).private == "timed out"


def test_a_call_seen_to_differ_is_no_longer_found_by_anyone(graph: Graph, tmp_path: Path) -> None:
    root = add_root(graph)
    edge = step(graph, root, "ps")
    with Graph(tmp_path / "tvsnap.db") as other:
        assert other.lookup(root, call("ps"), 30.0) is not None
        graph.mark_nondeterministic(edge, "output differs")
        assert other.lookup(root, call("ps"), 30.0) is None
        marked = other.recorded(root, call("ps"))
    assert marked is not None
    assert (marked.deterministic, marked.shared, marked.reason) == (False, True, "output differs")
    again = step(graph, root, "ps", "something else")
    assert (again.id, again.deterministic, again.result.output) == (edge.id, False, "")


def test_the_first_to_record_wins(graph: Graph) -> None:
    root = add_root(graph)
    first = step(graph, root, "make", "one")
    second = step(graph, root, "make", "two")
    third = look(graph, root, "make", "three")
    assert first == second == third
    assert len(graph.out_edges(root)) == 1


def test_a_state_has_one_origin(graph: Graph) -> None:
    root = add_root(graph)
    after = step(graph, root, "make").next_state
    with pytest.raises(UsageError, match="another origin"):
        graph.record(NewEdge(root, call("other"), result(), next_state=after))
    with pytest.raises(UsageError, match="another origin"):
        graph.record(NewEdge(root, call("make"), result("late"), next_state=after, shared=False))
    assert len(graph.out_edges(root)) == 1


def test_nothing_is_recorded_from_an_unknown_state(graph: Graph) -> None:
    with pytest.raises(NotFound, match="abababababab is not in the graph"):
        graph.record(NewEdge("ab" * 32, call("ls"), result(), next_state="cd" * 32))


@pytest.mark.parametrize(
    "text",
    ["", "plain", "ünïcödé ☃", "nul\0inside", "x" * 100_000, "ü" * 3000, "lone \ud800 surrogate", "\udcff" * 5000],
    ids=["empty", "plain", "unicode", "nul", "long", "long-in-bytes", "surrogate", "long-surrogates"],
)
def test_any_text_survives(graph: Graph, text: str) -> None:
    root = add_root(graph)
    graph.record(NewEdge(root, call(f"echo {text}"), result(text), next_state=root))
    found = graph.lookup(root, call(f"echo {text}"), 30.0)
    assert found is not None
    assert found.result.output == text
    (edge,) = graph.out_edges(root)
    assert edge.call == call(f"echo {text}")
    assert graph.tree()[0].unchanging[0].call == edge.call


def test_long_outputs_are_compressed(graph: Graph, tmp_path: Path) -> None:
    root = add_root(graph)
    for number in range(20):
        look(graph, root, f"cat {number}", "the same line again\n" * 10_000)
    graph.close()
    assert (tmp_path / "tvsnap.db").stat().st_size < 400_000


def test_what_is_kept_in_memory_is_written_after_a_while(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "FLUSH_AFTER_SECONDS", 0.05)
    edge = step(graph, add_root(graph), "make")
    with Graph(tmp_path / "tvsnap.db") as other:
        for _ in range(2):
            before = other.edge(edge.id)
            graph.touch_hit(edge, "task")
            eventually(partial(lambda before: other.edge(edge.id) != before, before))
        graph.record_later(
            NewEdge(edge.next_state, call("ls"), result("f"), next_state=edge.next_state, reason="private")
        )
        eventually(lambda: [found.reason for found in other.out_edges(edge.next_state)] == ["private"])


def test_hits_forks_and_counters_are_written_by_flush(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "FLUSH_AFTER_SECONDS", 1e6)
    root = add_root(graph)
    edge = step(graph, root, "make")
    graph.add_snapshot(snapshot_of(root))
    with Graph(tmp_path / "tvsnap.db") as other:
        for _ in range(3):
            graph.touch_hit(edge, "task")
            graph.touch_snapshot(root, "fake", 0.25)
        graph.touch_snapshot(root, "fake")
        graph.count_by(iter([{"hits": 3, "saved_s": 1.5}, {}]).__next__)
        assert (other.edge(edge.id).hits, other.counters()) == (0, {})
        graph.flush()
        assert other.edge(edge.id).hits == 3
        assert other.counters() == {"hits": 3, "saved_s": 1.5}
        other.count_by(iter([{"hits": 2}, {}, {}]).__next__)
        assert other.counters()["hits"] == 5
        snapshot = other.snapshot(root, "fake")
        assert snapshot is not None
        assert (snapshot.forks, snapshot.fork_s) == (4, 0.25)
        assert snapshot.last_used > snapshot.created
    assert graph.tasks() == ["task"]


def test_closing_writes_what_was_counted(tmp_path: Path) -> None:
    with Graph(tmp_path / "tvsnap.db") as graph:
        edge = step(graph, add_root(graph), "make")
        graph.touch_hit(edge)
        graph.count_by(lambda: {"hits": 1})
    with Graph(tmp_path / "tvsnap.db") as graph:
        assert graph.edge(edge.id).hits == 1
        assert graph.counters() == {"hits": 1}


def test_counting_what_was_forgotten_meanwhile_is_harmless(graph: Graph) -> None:
    root = add_root(graph)
    edge = step(graph, root, "make", task="a")
    graph.touch_hit(edge, "b")
    graph.forget(edge.next_state)
    graph.touch_hit(edge, "b")
    graph.touch_snapshot(edge.next_state, "fake", 1.0)
    graph.mark_nondeterministic(edge, "gone")
    graph.flush()
    assert graph.out_edges(root) == []


def test_an_identity_is_never_used_again(graph: Graph) -> None:
    root = add_root(graph)
    edge = step(graph, root, "make")
    graph.forget(edge.next_state)
    assert step(graph, root, "make").id > edge.id


def test_after_close_there_is_a_clear_error(graph: Graph) -> None:
    root = add_root(graph)
    graph.close()
    graph.close()
    with pytest.raises(InfrastructureError, match="has been closed"):
        graph.lookup(root, call("ls"), 30.0)
    with pytest.raises(InfrastructureError, match="has been closed"):
        step(graph, root, "ls")


def test_a_failed_record_leaves_nothing_and_the_graph_usable(graph: Graph) -> None:
    root = add_root(graph)
    with pytest.raises(UsageError, match="plain JSON"):
        graph.record(NewEdge(root, call("a"), replace(result(), cost={"usd": math.nan}), next_state=root))
    with pytest.raises(InfrastructureError):
        graph.record(NewEdge(root, call("a"), result(), next_state=root, deterministic=None))  # type: ignore[arg-type]
    assert graph.out_edges(root) == []
    step(graph, root, "a")


def test_recording_leaves_the_lease_to_its_holder(graph: Graph) -> None:
    """Who waits for the call is to be answered only once what it led to is kept."""
    root = add_root(graph)
    assert claim(graph, root, "make", "me")
    graph.record(NewEdge(root, call("make"), result(), next_state=root))
    assert graph.release(root, call("make").key, "me")
    assert graph.holder(root, call("make").key) is None


def test_parts_come_back_as_they_were(graph: Graph) -> None:
    root = add_root(graph)
    parts = (
        Part.text("a pair \udc80, é\n"),
        Part.png(b"\x89PNG\r\n\x1a\n\0" * 3),
        Part.json({"a": [1, None]}),
        Part("x/y", b""),
    )
    for number, kept in enumerate(
        [parts, parts[1:2], (), (Part("text/html", "<p>"),), (Part.text("x" * 9000), parts[1])]
    ):
        made = ToolResult(kept, 0, 0.5, cost={"usd": 0.25, "tokens": 12.0})
        graph.record(NewEdge(root, call(str(number)), made, next_state=root))
        found = graph.lookup(root, call(str(number)), 30.0)
        assert found is not None
        assert found.result == made.from_source("hit")
        assert graph.edge(found.id) == found
        assert found.result.output == "".join(part.data for part in kept if isinstance(part.data, str))


def test_many_threads_record_and_look_up(graph: Graph) -> None:
    root = add_root(graph)
    failures: list[BaseException] = []
    winners: list[list[int]] = [[] for _ in range(8)]

    def work(thread: int) -> None:
        try:
            state = root
            for number in range(60):
                shared = step(graph, state, f"shared {number}", task=f"task {thread}")
                winners[thread].append(shared.id)
                look(graph, state, f"own {thread} {number}")
                found = graph.lookup(state, call(f"own {thread} {number}"), 30.0)
                assert found is not None
                graph.touch_hit(found, f"task {thread}")
                state = shared.next_state
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert all(ids == winners[0] for ids in winners)
    nodes = graph.tree()
    assert len(nodes) == 61
    assert sum(len(node.unchanging) for node in nodes) == 8 * 60
