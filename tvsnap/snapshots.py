"""Taking snapshots: asks the policy, takes the checkpoint, records it; what goes wrong never fails a rollout."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

from tvsnap.backends.base import Backend
from tvsnap.errors import InfrastructureError, NotCheckpointable, NotFound, SandboxDied, TvsnapError
from tvsnap.graph import Edge, Graph, Snapshot
from tvsnap.policy import Costs, Policy, Rebuild, looks_volatile
from tvsnap.pool import LiveSandbox
from tvsnap.stats import Meter

LONGEST_CHECKPOINT = 60.0  # seconds to wait for one that someone else takes
RETRY_AFTER = 60.0  # seconds without snapshots after one could not be taken (a full disk)
REMEMBERED = 10_000  # states

V = TypeVar("V")


class Snapshotter:
    """Snapshots states where the policy says so. Thread-safe.

    Attributes:
        trouble: why no snapshots are being taken at present; empty if they are.
    """

    def __init__(self, graph: Graph, backend: Backend, policy: Policy, costs: Costs, meter: Meter) -> None:
        self.trouble = ""
        self._graph = graph
        self._backend = backend
        self._policy = policy
        self._costs = costs
        self._meter = meter
        self._paused_until = 0.0
        self._lock = threading.Lock()
        self._spent: OrderedDict[str, float] = OrderedDict()
        self._refused: OrderedDict[str, str] = OrderedDict()
        self._expected: dict[str, threading.Event] = {}

    def expect(self, state: str) -> None:
        """Says that `consider` will soon be called for a new state, so that nobody replays what leads to it meanwhile.

        Whoever says so must call `settle` in any case.
        """
        with self._lock:
            self._expected.setdefault(state, threading.Event())

    def settle(self, state: str) -> None:
        """Says that a state has its snapshot by now, or that none will be taken; safe to repeat."""
        with self._lock:
            expected = self._expected.pop(state, None)
        if expected is not None:
            expected.set()

    def wait(self, states: Iterable[str]) -> None:
        """Waits for snapshots of `states` that are expected; look after that what snapshots there are."""
        with self._lock:
            expected = [self._expected[state] for state in states if state in self._expected]
        for event in expected:
            event.wait(LONGEST_CHECKPOINT)

    def consider(self, live: LiveSandbox, *, volatile: bool = False) -> None:
        """Snapshots the state that a sandbox has just come to by a call, if the policy says so.

        Args:
            live: the sandbox.
            volatile: the call is known to have left behind what a replay of it would not.

        Raises:
            SandboxDied: if the sandbox ended over it.
        """
        self._consider(live, replayed=False, volatile=volatile)

    def consider_rebuilt(self, live: LiveSandbox, seconds: float) -> None:
        """Snapshots a state that was rebuilt by replay, or started anew, if that has cost too much by now.

        Args:
            live: the sandbox, which stands at the state.
            seconds: what rebuilding it took.

        Raises:
            SandboxDied: if the sandbox ended over it.
        """
        with self._lock:
            _put(self._spent, live.state, self._spent.get(live.state, 0.0) + seconds)
        self._consider(live, replayed=True, volatile=False)

    def take(self, live: LiveSandbox) -> None:
        """Snapshots the state that a sandbox stands at, whatever the policy says, unless it has a snapshot.

        Raises:
            NotCheckpointable: with the reason in words.
            InfrastructureError: if it failed.
        """
        if self._graph.snapshot(live.state, self._backend.name) is None:
            self._checkpoint(live)

    def refusal(self, state: str) -> str:
        """Returns why a state cannot be checkpointed, as seen by this process; empty if it was not tried or can be."""
        return self._refused.get(state, "")

    def _consider(self, live: LiveSandbox, *, replayed: bool, volatile: bool) -> None:
        if live.state in self._refused or time.monotonic() < self._paused_until:
            return
        try:
            snapshot, edges = self._graph.nearest_snapshot(live.state, self._backend.name)
        except NotFound:
            return
        if snapshot is not None and not edges:
            return
        rebuild = self._rebuild(live.state, snapshot, edges, replayed=replayed, volatile=volatile)
        if not self._policy.should_checkpoint(rebuild, self._costs):
            return
        try:
            self._checkpoint(live)
            self.trouble = ""
        except NotCheckpointable as refusal:
            with self._lock:
                _put(self._refused, live.state, str(refusal))
            self._graph.note_refusal(live.state, self._backend.name, str(refusal))
        except SandboxDied:
            raise
        except (InfrastructureError, OSError) as error:
            self.trouble = str(error)
            self._paused_until = time.monotonic() + RETRY_AFTER

    def _rebuild(
        self, state: str, snapshot: Snapshot | None, edges: list[Edge], *, replayed: bool, volatile: bool
    ) -> Rebuild:
        """Returns what it takes to rebuild a state from the nearest snapshot (or its root) and the calls after that."""
        return Rebuild(
            snapshot is None,
            len(edges),
            sum(edge.result.duration for edge in edges),
            self._spent.get(state, 0.0),
            # What was just replayed has been seen to return the same.
            volatile or (not replayed and any(looks_volatile(edge.result.output) for edge in edges)),
            0.0 if snapshot is None else snapshot.checkpoint_s,
            0.0 if snapshot is None else snapshot.fork_s or 0.0,
        )

    def _checkpoint(self, live: LiveSandbox) -> None:
        began = time.perf_counter()
        info = live.sandbox.checkpoint()
        seconds = time.perf_counter() - began
        self._costs.add("checkpoint", seconds)
        self._meter.checkpoint(seconds)
        now = time.time()
        snapshot = Snapshot(
            live.state,
            info.id,
            self._backend.name,
            info.size,
            info.captures,
            seconds,
            None,
            info.processes,
            now,
            now,
        )
        try:
            added = self._graph.add_snapshot(snapshot)
        except TvsnapError:
            added = False
        if not added:
            self._backend.delete_snapshot(info.id)


def _put(table: OrderedDict[str, V], key: str, value: V) -> None:
    """Puts a value into a table that forgets its oldest."""
    table[key] = value
    while len(table) > REMEMBERED:
        table.popitem(last=False)
