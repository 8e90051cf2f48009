"""Checking the graph against reality: recorded calls are made again in forks of their states, and compared."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tvsnap.cache import Cache
from tvsnap.calls import ToolResult
from tvsnap.errors import InfrastructureError, NotFound, TvsnapError
from tvsnap.graph import Edge
from tvsnap.rebuild import difference

DEFAULT_SAMPLE = 50


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
class VerifyReport:
    """What a verification found.

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


def candidates(cache: Cache, task: str | None = None) -> list[int]:
    """Returns the ids of the recorded calls that may answer calls, oldest first.

    Args:
        cache: whose graph.
        task: only those that this task's rollouts made.
    """
    calls = [
        call
        for node in cache.graph.tree(task=task)
        for call in ((node.made_by,) if node.made_by else ()) + node.unchanging
    ]
    return sorted(call.id for call in calls if call.shared and call.deterministic)


def choose(ids: Sequence[int], sample: int | None, seed: int = 0) -> list[int]:
    """Returns a random sample of some calls, in their order.

    Args:
        ids: the calls.
        sample: how many; None for all.
        seed: decides which.
    """
    return list(ids) if sample is None or sample >= len(ids) else sorted(random.Random(seed).sample(ids, sample))


def verify(
    cache: Cache,
    ids: Sequence[int],
    *,
    parallel: int = 1,
    mark: bool = True,
    progress: Callable[[], None] | None = None,
) -> VerifyReport:
    """Makes recorded calls again and compares.

    An interrupt (Ctrl-C) ends it early, with a report of what was done; the cache can only be closed after that.

    Args:
        cache: whose graph and sandboxes.
        ids: the calls, see `choose`.
        parallel: how many sandboxes to use at once.
        mark: mark calls that differ nondeterministic in the graph, so that they answer nothing from then on. Those that
            differ in a replay on the way to a state are marked in any case: the state is not what was recorded.
        progress: told of each call that is done, in any thread.
    """
    return _Verification(cache, mark, progress or (lambda: None)).run(ids, parallel)


class _Verification:
    def __init__(self, cache: Cache, mark: bool, progress: Callable[[], None]) -> None:
        self._cache = cache
        self._mark = mark
        self._progress = progress
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._checked = self._same = 0
        self._differences: dict[int, Difference] = {}
        self._failures: list[tuple[Edge, str]] = []

    def run(self, ids: Sequence[int], parallel: int) -> VerifyReport:
        interrupted = False
        with ThreadPoolExecutor(parallel, thread_name_prefix="verify") as workers:
            try:
                for future in [workers.submit(self._check, id) for id in ids]:
                    future.result()
            except BaseException as error:
                self._stop.set()
                self._cache.pool.close()  # ends what is under way
                if not isinstance(error, KeyboardInterrupt):
                    raise
                interrupted = True
        return VerifyReport(
            self._checked,
            self._same,
            tuple(self._differences[id] for id in sorted(self._differences)),
            tuple(sorted(self._failures, key=lambda failure: failure[0].id)),
            interrupted,
        )

    def _check(self, id: int) -> None:
        """Makes one recorded call again."""
        if self._stop.is_set():
            return
        try:
            edge = self._cache.graph.edge(id)
        except NotFound:
            return  # forgotten meanwhile
        try:
            seen = self._cache.reexecute(edge, self._differed_on_the_way)
        except TvsnapError as error:
            if self._stop.is_set():
                return
            with self._lock:
                self._failures.append((edge, str(error)))
        else:
            same = seen.same_value(edge.result)
            with self._lock:
                self._checked += 1
                self._same += same
            if not same:
                if self._mark:
                    self._cache.graph.mark_nondeterministic(edge, f"a verification {difference(edge.result, seen)}")
                self._add(edge, seen)
        self._progress()

    def _differed_on_the_way(self, edge: Edge, seen: ToolResult) -> None:
        """Takes note of a call that differed when it was replayed, whereby the state it led to cannot be rebuilt."""
        if edge.shared and not seen.same_value(edge.result):
            self._add(edge, seen)
        raise InfrastructureError(
            f"its state cannot be rebuilt: a replay of {edge.call.canonical[:60]} {difference(edge.result, seen)}"
        )

    def _add(self, edge: Edge, seen: ToolResult) -> None:
        with self._lock:
            self._differences.setdefault(edge.id, Difference(edge, seen, difference(edge.result, seen)))
