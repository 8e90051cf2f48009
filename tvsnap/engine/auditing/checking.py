"""Makes recorded calls again in forks of their states and compares the results, for `verify` and for audits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tvsnap.engine.supply.rebuilding import RebuildDiffered
from tvsnap.graph import Edge, Graph
from tvsnap.graph.edges import far_apart
from tvsnap.graph.reexecution import Remade, difference
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import NotFound, TvsnapError

Reexecute = Callable[[Edge], Remade]  # makes a recorded call once more; see `Cache.reexecute`


@dataclass(frozen=True, slots=True)
class Difference:
    """A recorded call that gave a different result when it was made again."""

    edge: Edge  # the call as recorded
    seen: ToolResult  # its result now
    words: str  # the difference, in words


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The results of making recorded calls again.

    Attributes:
        checked: how many recorded calls were made again.
        same: how many of them returned the recorded result and, if that can be compared, left the same behind.
        differences: calls that returned something else, or that left something else behind although they were known to
            be reproducible; also those that were only replayed on the way to a state.
        by_chance: calls that returned the same but left something else behind, and were not known to be reproducible:
            their states are reached by their snapshots alone, and their answers remain valid.
        failures: calls that could not be made again, each with the reason: their state could not be rebuilt, or their
            sandbox failed.
        interrupted: the check was stopped before its end.
    """

    checked: int
    same: int
    differences: tuple[Difference, ...]
    failures: tuple[tuple[Edge, str], ...]
    interrupted: bool = False
    by_chance: tuple[Edge, ...] = ()

    def __add__(self, other: CheckReport) -> CheckReport:
        """Returns both together; for a call that differs in both, the difference of the first."""
        ids = {difference.edge.id for difference in self.differences}
        return CheckReport(
            self.checked + other.checked,
            self.same + other.same,
            self.differences + tuple(difference for difference in other.differences if difference.edge.id not in ids),
            self.failures + other.failures,
            self.interrupted or other.interrupted,
            self.by_chance + other.by_chance,
        )


NOTHING_CHECKED = CheckReport(0, 0, (), ())


@dataclass(slots=True)
class Checker:
    """Makes recorded calls again, and collects the results. Thread-safe."""

    graph: Graph  # the graph that has the calls
    reexecute: Reexecute
    by: str  # the name of the check in the reasons that the graph keeps: `a verification`
    # Mark calls that differ nondeterministic in the graph, so that they answer nothing from then on. Those that differ
    # in a replay on the way to a state are marked in any case: they were relied on.
    mark: bool = True
    on_difference: Callable[[Difference], None] = lambda _: None  # called once for each, in the thread that found it
    _stopped: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _checked: int = field(default=0, init=False)
    _same: int = field(default=0, init=False)
    _differences: dict[int, Difference] = field(default_factory=dict, init=False)
    _failures: dict[int, tuple[Edge, str]] = field(default_factory=dict, init=False)
    _by_chance: dict[int, Edge] = field(default_factory=dict, init=False)

    def stop(self) -> None:
        """Stops checking; a check that fails from now on is not reported."""
        self._stopped = True

    def check(self, id: int) -> None:
        if self._stopped:
            return
        try:
            edge = self.graph.edge(id)
        except NotFound:
            return  # forgotten meanwhile
        try:
            remade = self.reexecute(edge)
        except TvsnapError as error:
            if not self._stopped:
                if isinstance(error, RebuildDiffered) and error.edge.proven:  # it was relied on
                    self._add(Difference(error.edge, error.seen, difference(error.edge.result, error.seen)))
                with self._lock:
                    self._failures[id] = (edge, str(error))
            return
        words = remade.difference(edge)
        by_chance = bool(words) and not edge.proven and remade.result.same_value(edge.result)
        with self._lock:
            self._checked += 1
            self._same += not words
            if by_chance:
                self._by_chance[id] = edge
        if by_chance:
            return
        if words:
            if self.mark:
                self.graph.mark_nondeterministic(edge, f"{self.by} {words}")
            self._add(Difference(edge, remade.result, words))
        elif edge.changed and edge.digest and edge.comparable and not edge.proven and far_apart(edge, time.time()):
            self.graph.prove(edge)

    def report(self, *, interrupted: bool = False) -> CheckReport:
        """Returns the results so far, in the order of the calls."""
        with self._lock:
            return CheckReport(
                self._checked,
                self._same,
                tuple(self._differences[id] for id in sorted(self._differences)),
                tuple(self._failures[id] for id in sorted(self._failures)),
                interrupted,
                tuple(self._by_chance[id] for id in sorted(self._by_chance)),
            )

    def _add(self, difference: Difference) -> None:
        with self._lock:
            first = self._differences.setdefault(difference.edge.id, difference)
        if first is difference:
            self.on_difference(difference)
