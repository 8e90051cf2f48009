"""Making recorded calls again in forks of their states, and comparing: one by one, for `verify` and for audits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tvsnap.calls import ToolResult
from tvsnap.errors import InfrastructureError, NotFound, TvsnapError
from tvsnap.graph import Edge, Graph
from tvsnap.rebuild import difference


class Reexecute(Protocol):
    """Makes a recorded call once more; see `Cache.reexecute`."""

    def __call__(self, edge: Edge, on_difference: Callable[[Edge, ToolResult], None] | None = None) -> ToolResult: ...


@dataclass(frozen=True, slots=True)
class Difference:
    """A recorded call that returned something else when it was made again.

    Attributes:
        edge: the call as recorded.
        seen: what it returned now.
        words: how that differs.
    """

    edge: Edge
    seen: ToolResult
    words: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What making recorded calls again came to.

    Attributes:
        checked: how many recorded calls were made again.
        same: how many of them returned what was recorded.
        differences: calls that returned something else, those included that were only replayed on the way to a state.
        failures: calls that could not be made again, each with the reason: their state could not be rebuilt, or their
            sandbox failed.
        interrupted: it was stopped before its end.
    """

    checked: int
    same: int
    differences: tuple[Difference, ...]
    failures: tuple[tuple[Edge, str], ...]
    interrupted: bool = False


NOTHING_CHECKED = CheckReport(0, 0, (), ())


class Checker:
    """Makes recorded calls again, and keeps what came of it. Thread-safe."""

    def __init__(
        self,
        graph: Graph,
        reexecute: Reexecute,
        *,
        by: str,
        mark: bool = True,
        on_difference: Callable[[Difference], None] | None = None,
    ) -> None:
        """
        Args:
            graph: where the calls are recorded.
            reexecute: makes one again.
            by: who checks, for the reasons that are kept in the graph: `a verification`.
            mark: mark calls that differ nondeterministic in the graph, so that they answer nothing from then on. Those
                that differ in a replay on the way to a state are marked in any case: the state is not what was
                recorded.
            on_difference: told of each difference, once, in the thread that found it.
        """
        self._graph = graph
        self._reexecute = reexecute
        self._by = by
        self._mark = mark
        self._on_difference = on_difference or (lambda _: None)
        self._stopped = False
        self._lock = threading.Lock()
        self._checked = self._same = 0
        self._differences: dict[int, Difference] = {}
        self._failures: dict[int, tuple[Edge, str]] = {}

    def stop(self) -> None:
        """Says that no more is to be checked; a check that fails from now on counts for nothing."""
        self._stopped = True

    def check(self, id: int) -> None:
        """Makes one recorded call again.

        Args:
            id: the call's, in the graph.
        """
        if self._stopped:
            return
        try:
            edge = self._graph.edge(id)
        except NotFound:
            return  # forgotten meanwhile
        try:
            seen = self._reexecute(edge, self._differed_on_the_way)
        except TvsnapError as error:
            if not self._stopped:
                with self._lock:
                    self._failures[id] = (edge, str(error))
            return
        same = seen.same_value(edge.result)
        with self._lock:
            self._checked += 1
            self._same += same
        if same:
            return
        if self._mark:
            self._graph.mark_nondeterministic(edge, f"{self._by} {difference(edge.result, seen)}")
        self._add(edge, seen)

    def report(self, *, interrupted: bool = False) -> CheckReport:
        """Returns what was found so far, in the order of the calls.

        Args:
            interrupted: see `CheckReport`.
        """
        with self._lock:
            return CheckReport(
                self._checked,
                self._same,
                tuple(self._differences[id] for id in sorted(self._differences)),
                tuple(self._failures[id] for id in sorted(self._failures)),
                interrupted,
            )

    def _differed_on_the_way(self, edge: Edge, seen: ToolResult) -> None:
        """Takes note of a call that differed when it was replayed, whereby the state it led to cannot be rebuilt."""
        if edge.shared and not seen.same_value(edge.result):
            self._add(edge, seen)
        raise InfrastructureError(
            f"its state cannot be rebuilt: a replay of {edge.call.canonical[:60]} {difference(edge.result, seen)}"
        )

    def _add(self, edge: Edge, seen: ToolResult) -> None:
        found = Difference(edge, seen, difference(edge.result, seen))
        with self._lock:
            known = self._differences.setdefault(edge.id, found)
        if known is found:
            self._on_difference(found)
