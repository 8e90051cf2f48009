"""Taking snapshots: asks the policy, takes the checkpoint, records it; what goes wrong never fails a rollout."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TypeVar

from tvsnap.backends.base import Backend
from tvsnap.errors import InfrastructureError, NotCheckpointable, NotFound, SandboxDied, TvsnapError
from tvsnap.graph import Edge, Graph, Snapshot
from tvsnap.policy import Costs, Policy, Rebuild, looks_volatile
from tvsnap.pool import LiveSandbox
from tvsnap.stats import Meter

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

    def consider(self, live: LiveSandbox) -> None:
        """Snapshots the state that a sandbox has just come to by a call, if the policy says so.

        Raises:
            SandboxDied: if the sandbox ended over it.
        """
        self._consider(live, replayed=False)

    def consider_rebuilt(self, live: LiveSandbox, seconds: float) -> None:
        """Snapshots a state that was rebuilt by replay, if that has cost too much by now.

        Args:
            live: the sandbox, which stands at the state.
            seconds: what rebuilding it took.

        Raises:
            SandboxDied: if the sandbox ended over it.
        """
        with self._lock:
            _put(self._spent, live.state, self._spent.get(live.state, 0.0) + seconds)
        self._consider(live, replayed=True)

    def refusal(self, state: str) -> str:
        """Returns why a state cannot be checkpointed, as seen by this process; empty if it was not tried or can be."""
        return self._refused.get(state, "")

    def _consider(self, live: LiveSandbox, *, replayed: bool) -> None:
        if live.state in self._refused or time.monotonic() < self._paused_until:
            return
        try:
            snapshot, edges = self._graph.nearest_snapshot(live.state, self._backend.name)
        except NotFound:
            return
        if snapshot is not None and not edges:
            return
        rebuild = self._rebuild(live.state, edges, from_root=snapshot is None, replayed=replayed)
        if self._policy.should_checkpoint(rebuild, self._costs):
            self._checkpoint(live)

    def _rebuild(self, state: str, edges: list[Edge], *, from_root: bool, replayed: bool) -> Rebuild:
        return Rebuild(
            from_root,
            len(edges),
            sum(edge.result.duration for edge in edges),
            self._spent.get(state, 0.0),
            # What was just replayed has been seen to return the same.
            not replayed and any(looks_volatile(edge.result.output) for edge in edges),
        )

    def _checkpoint(self, live: LiveSandbox) -> None:
        began = time.perf_counter()
        try:
            info = live.sandbox.checkpoint()
        except NotCheckpointable as refusal:
            with self._lock:
                _put(self._refused, live.state, str(refusal))
            return
        except SandboxDied:
            raise
        except (InfrastructureError, OSError) as error:
            self.trouble = str(error)
            self._paused_until = time.monotonic() + RETRY_AFTER
            return
        self.trouble = ""
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
