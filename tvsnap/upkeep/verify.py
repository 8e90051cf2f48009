"""Checks the graph: makes recorded calls again in forks of their states.

Their results and their aftermaths are compared.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from tvsnap.engine.auditing.checking import Checker, CheckReport
from tvsnap.model.errors import NotFound

if TYPE_CHECKING:
    from tvsnap.cache import Cache
    from tvsnap.graph.model import TreeNode

K = TypeVar("K")


@runtime_checkable
class CacheElsewhere(Protocol):
    """A cache at a server, which makes calls again itself; see `tvsnap.Client`."""

    def check(self, kind: type[K], call: int, *, mark: bool = True) -> K:
        """Has a recorded call made again; see `Client.check`."""


def candidates(nodes: Iterable[TreeNode]) -> list[int]:
    """Returns the ids of the calls in a tree that may answer calls, oldest first."""
    calls = [call for node in nodes for call in ((node.made_by,) if node.made_by else ()) + node.unchanging]
    return sorted(call.id for call in calls if call.shared and call.deterministic and call.comparable)


def choose(ids: Sequence[int], sample: int | None, seed: int = 0) -> list[int]:
    """Returns a random sample of some calls, in their order; all of them if `sample` is None."""
    return list(ids) if sample is None or sample >= len(ids) else sorted(random.Random(seed).sample(ids, sample))


def verify(
    cache: Cache | CacheElsewhere,
    ids: Sequence[int],
    *,
    parallel: int = 1,
    mark: bool = True,
    progress: Callable[[], None] | None = None,
) -> CheckReport:
    """Makes recorded calls again and compares the results.

    An interrupt (Ctrl-C) ends it early, with a report on the part that was done; the cache can only be closed after
    that. Calls that a server is making then run to their end.

    Args:
        cache: the cache with the graph and the sandboxes, here or on a server.
        ids: the calls, see `choose`.
        parallel: sandboxes to use at once.
        mark: see `Checker`.
        progress: called after each call, in any thread.
    """
    checker: Checker | _RemoteChecker
    if isinstance(cache, CacheElsewhere):
        checker = _RemoteChecker(cache, mark=mark)
    else:
        checker = Checker(cache.graph, cache.reexecute, by="a verification", mark=mark)

    def check(id: int) -> None:
        checker.check(id)
        if progress is not None:
            progress()

    interrupted = False
    with ThreadPoolExecutor(parallel, thread_name_prefix="verify") as workers:
        try:
            for future in [workers.submit(check, id) for id in ids]:
                future.result()
        except BaseException as error:
            checker.stop()
            if not isinstance(cache, CacheElsewhere):
                cache.pool.close()  # ends calls that are running
            if not isinstance(error, KeyboardInterrupt):
                raise
            interrupted = True
    return checker.report(interrupted=interrupted)


class _RemoteChecker:
    """A `Checker` whose calls a server makes again, and compares. Thread-safe."""

    def __init__(self, client: CacheElsewhere, *, mark: bool) -> None:
        self._client = client
        self._mark = mark
        self._stopped = False
        self._reports: dict[int, CheckReport] = {}

    def stop(self) -> None:
        """Stops checking."""
        self._stopped = True

    def check(self, id: int) -> None:
        """Has a call made again."""
        if not self._stopped:
            with contextlib.suppress(NotFound):  # forgotten meanwhile
                self._reports[id] = self._client.check(CheckReport, id, mark=self._mark)

    def report(self, *, interrupted: bool) -> CheckReport:
        """Returns the results so far, in the order of the calls."""
        of_all = CheckReport(0, 0, (), (), interrupted)
        return functools.reduce(operator.add, (self._reports[id] for id in sorted(self._reports)), of_all)
