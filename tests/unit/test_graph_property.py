"""Random histories: the graph against a plain dictionary that does the same."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.graph_helpers import add_root, call, disorder, snapshot_of
from tvsnap.graph import Edge, Graph, NewEdge
from tvsnap.model.calls import ToolResult, next_state
from tvsnap.model.errors import NotFound

COMMANDS = st.sampled_from(["a", "b", "c"])
TASKS = st.sampled_from(["alpha", "beta", ""])
TIMEOUTS = st.sampled_from([1.0, 2.0, 4.0])
LEFT = st.sampled_from(["one thing", "another", ""])
"""What a call left behind, by its digest; empty if nobody knows, and it is random then."""


@dataclass
class Known:
    """What the dictionary knows of a state."""

    parent: str | None
    depth: int
    edge: int | None
    snapshot: bool = False
    slots: dict[tuple[str, float], Edge] = field(default_factory=dict)
    unshared: list[Edge] = field(default_factory=list)

    @property
    def edges(self) -> list[Edge]:
        return sorted([*self.slots.values(), *self.unshared], key=lambda edge: edge.id)

    def seen(self, like: Edge) -> set[str]:
        """Returns what a call was seen to leave behind."""
        alike = [edge for edge in self.edges if (edge.call, edge.timeout) == (like.call, like.timeout)]
        return {edge.digest for edge in alike if edge.digest}


class GraphAgainstDictionary(RuleBasedStateMachine):
    """Does each thing to both, and compares what comes back."""

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tvsnap-test-"))
        self.graph = Graph(self.directory / "tvsnap.db")
        self.root = add_root(self.graph)
        self.known = {self.root: Known(None, 0, None)}
        self.undeterministic: set[int] = set()
        self.proven: set[int] = set()
        self.visits: dict[int, set[str]] = {}
        self.nonce = 0

    def teardown(self) -> None:
        if hasattr(self, "graph"):
            self.graph.close()
            found = disorder(self.directory / "tvsnap.db")
            shutil.rmtree(self.directory)
            assert found == []

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(list(self.known)), label="state")

    def learn(self, edge: Edge) -> None:
        if edge.changed:
            self.known[edge.next_state] = Known(edge.state, self.known[edge.state].depth + 1, edge.id)

    def visit(self, edge: Edge, task: str) -> None:
        """Counts the edge and the way to it as visited, as a rollout does."""
        for passed in [*self.graph.lineage(edge.state), edge]:
            self.graph.touch_hit(passed, task)
            self.visits.setdefault(passed.id, set()).add(task)

    def keeps(self, edge: Edge) -> bool:
        """Whether whoever is given the answer can go on from there."""
        return not edge.changed or edge.id in self.proven or self.known[edge.next_state].snapshot

    @rule(
        data=st.data(),
        command=COMMANDS,
        task=TASKS,
        left=st.none() | LEFT,
        duration=TIMEOUTS,
        blocked=st.booleans(),
        by_nature=st.sampled_from([False, False, False, True]),
    )
    def record_shared(
        self,
        data: st.DataObject,
        command: str,
        task: str,
        left: str | None,
        duration: float,
        blocked: bool,
        by_nature: bool,
    ) -> None:
        """An execution; `left` is None where it changed nothing."""
        state = self.pick(data)
        timeout = duration if blocked else None
        self.nonce += 1
        identity = left or f"{self.nonce}"
        after = state if left is None else next_state(state, call(command), timeout=timeout, identity=identity)
        given = ToolResult.of_text(f"{command} {self.nonce}", 0, duration, timed_out=blocked, blocked=blocked)
        edge = self.graph.record(
            NewEdge(
                state,
                call(command),
                given,
                next_state=after,
                task=task,
                timeout=timeout,
                digest=left or None,
                comparable=bool(left),
                proven=by_nature,
                backend="fake",
            )
        )
        self.expect(edge, given, after, left or "", by_nature=by_nature)
        self.visit(edge, task)

    def expect(self, edge: Edge, given: ToolResult, after: str, left: str, *, by_nature: bool) -> None:
        """Does what recording does, and checks that it did."""
        known, key = self.known[edge.state], (edge.call.arguments["command"], edge.timeout or 0.0)
        before = known.slots.get(key)
        if before is not None and before.next_state != after and left and before.digest:
            self.proven.discard(before.id)  # it was seen to lead elsewhere
        if (
            before is not None
            and before.next_state != after
            and (self.keeps(before) or before.id in self.undeterministic)
        ):
            assert (edge.id, edge.result, edge.next_state) == (before.id, before.result, before.next_state)
            return
        twice = left and known.seen(edge) <= {left}
        if before is not None and before.next_state == after:
            assert (edge.id, edge.result) == (before.id, before.result)
            if edge.changed and (by_nature or twice):
                self.proven.add(edge.id)
        else:
            retired = next((each for each in known.unshared if each.changed and each.next_state == after), None)
            if before is not None:
                known.unshared.append(before)
            assert (edge.result, edge.next_state) == (given.from_source("hit"), after)
            known.slots[key] = edge
            self.undeterministic.discard(edge.id)
            self.proven.discard(edge.id)
            if by_nature or (retired is not None and twice):
                self.proven.add(edge.id)
            if retired is not None:
                assert edge.id == retired.id
                known.unshared.remove(retired)
            else:
                self.learn(edge)
        assert edge.proven == (edge.id in self.proven)

    @rule(data=st.data(), command=COMMANDS, task=TASKS, changed=st.booleans())
    def record_unshared(self, data: st.DataObject, command: str, task: str, changed: bool) -> None:
        state = self.pick(data)
        self.nonce += 1
        after = next_state(state, call(command), identity=str(self.nonce)) if changed else state
        given = ToolResult.of_text(str(self.nonce), 0, 0.5)
        edge = self.graph.record(
            NewEdge(
                state, call(command), given, next_state=after, task=task, shared=False, reason="by chance", private="so"
            )
        )
        self.known[state].unshared.append(edge)
        self.learn(edge)
        self.visit(edge, task)

    @rule(data=st.data(), command=COMMANDS, task=TASKS, timeout=TIMEOUTS)
    def look_up(self, data: st.DataObject, command: str, task: str, timeout: float) -> None:
        state = self.pick(data)
        slots = self.known[state].slots
        complete, blocked = slots.get((command, 0.0)), slots.get((command, timeout))
        fit = [edge for edge in (complete, blocked) if edge is not None and edge.id not in self.undeterministic]
        fit = [edge for edge in fit if edge.timeout is not None or edge.result.duration <= timeout]
        fit = [edge for edge in fit if self.keeps(edge)]
        found = self.graph.lookup(state, call(command), timeout, "fake")
        if not fit:
            assert found is None
        else:
            assert found is not None
            assert found.id in [edge.id for edge in fit]
            same = next(edge for edge in fit if edge.id == found.id)
            assert (found.result, found.next_state) == (same.result, same.next_state)
            self.visit(found, task)

    @rule(data=st.data())
    def mark(self, data: st.DataObject) -> None:
        edges = self.known[self.pick(data)].edges
        if edges:
            edge = data.draw(st.sampled_from(edges), label="edge")
            self.graph.mark_nondeterministic(edge, "differs")
            self.undeterministic.add(edge.id)

    @rule(data=st.data())
    def prove(self, data: st.DataObject) -> None:
        """A replay came to the same."""
        known = self.known[self.pick(data)]
        for edge in known.slots.values():
            if edge.changed and edge.digest:
                self.graph.prove(edge)
                if known.seen(edge) == {edge.digest}:
                    self.proven.add(edge.id)

    @rule(data=st.data())
    def snapshot(self, data: st.DataObject) -> None:
        state = self.pick(data)
        assert self.graph.add_snapshot(snapshot_of(state)) is not self.known[state].snapshot
        self.known[state].snapshot = True

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        state = self.pick(data)
        assert self.graph.drop_snapshot(state, "fake") is self.known[state].snapshot
        self.known[state].snapshot = False

    @rule(data=st.data())
    def rebuild(self, data: st.DataObject) -> None:
        state = self.pick(data)
        way: list[int] = []
        at: str | None = state
        while at is not None and not self.known[at].snapshot:
            edge = self.known[at].edge
            way += [] if edge is None else [edge]
            at = self.known[at].parent
        found, edges = self.graph.nearest_snapshot(state, "fake")
        assert (found and found.state) == at
        assert [edge.id for edge in edges] == way[::-1]
        distance = self.graph.distance(state, "fake")
        assert (distance.snapshot, distance.calls) == (found, len(edges))
        assert distance.seconds == pytest.approx(sum(edge.result.duration for edge in edges))
        assert distance.proven == all(edge.proven for edge in edges)
        assert distance.provable == all(edge.proven or edge.digest for edge in edges)
        assert self.graph.root_of(state).hash == self.root

    @rule(data=st.data(), dry_run=st.booleans())
    def forget(self, data: st.DataObject, dry_run: bool) -> None:
        state = self.pick(data)
        if state == self.root:
            return
        doomed = self.below(state)
        counted = self.graph.forget(state, dry_run=dry_run)
        assert counted.states == len(doomed)
        assert len(counted.snapshots) == sum(self.known[hash].snapshot for hash in doomed)
        assert counted.edges == 1 + sum(len(self.known[hash].edges) for hash in doomed)
        if not dry_run:
            edge = self.known[state].edge
            assert edge is not None
            self.delete({edge} | {edge.id for hash in doomed for edge in self.known[hash].edges})

    @rule(task=TASKS, dry_run=st.booleans())
    def forget_task(self, task: str, dry_run: bool) -> None:
        alone = {id for id, tasks in self.visits.items() if tasks == {task}}
        try:
            assert self.graph.forget_task(task, dry_run=dry_run).edges == len(alone)
        except NotFound:
            assert alone == set()
        if not dry_run:
            self.delete(alone)
            for tasks in self.visits.values():
                tasks.discard(task)

    @rule()
    def open_again(self) -> None:
        self.graph.close()
        self.graph = Graph(self.directory / "tvsnap.db")

    def below(self, state: str) -> list[str]:
        found = [state]
        for hash in found:
            found += [edge.next_state for edge in self.known[hash].edges if edge.changed]
        return found

    def delete(self, edges: set[int]) -> None:
        for known in self.known.values():
            known.slots = {slot: edge for slot, edge in known.slots.items() if edge.id not in edges}
            known.unshared = [edge for edge in known.unshared if edge.id not in edges]
        self.known = {hash: known for hash, known in self.known.items() if known.edge not in edges}
        self.visits = {id: tasks for id, tasks in self.visits.items() if id not in edges}

    @invariant()
    def both_list_the_same(self) -> None:
        if not hasattr(self, "graph"):
            return
        nodes = {node.state.hash: node for node in self.graph.tree()}
        assert set(nodes) == set(self.known)
        for hash, known in self.known.items():
            node = nodes[hash]
            assert (node.state.parent, node.state.depth) == (known.parent, known.depth)
            assert (node.made_by and node.made_by.id) == known.edge
            assert [made.id for made in node.unchanging] == [edge.id for edge in known.edges if not edge.changed]
            assert bool(node.snapshots) == known.snapshot
            made_by = node.made_by
            assert made_by is None or made_by.proven == (made_by.id in self.proven)


TestGraphAgainstDictionary = pytest.mark.usefixtures("proofs_at_once")(
    pytest.mark.timeout(300)(GraphAgainstDictionary.TestCase)
)
GraphAgainstDictionary.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
