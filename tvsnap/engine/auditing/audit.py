"""Audits: a share of the calls that the graph answered are made once more in the background, and compared.

What was served has been served; but a value that is found to be wrong is served to nobody else, and it is said aloud.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque

from tvsnap.engine.auditing.checking import Checker, CheckReport, Difference, Reexecute
from tvsnap.graph import Edge, Graph
from tvsnap.model.arguments import check_number
from tvsnap.model.stats import Meter

BACKLOG = 1000  # answers that wait for their audit; more are passed over
REMEMBERED = 100_000  # calls audited by this process, which are not audited again

_log = logging.getLogger(__name__)


class Auditor:
    """Makes calls again that were answered from the graph, one at a time. Thread-safe."""

    def __init__(self, share: float, graph: Graph, reexecute: Reexecute, meter: Meter) -> None:
        """
        Args:
            share: of the answers to audit, 0 to 1. Each call is audited once at most.
            graph: where they come from.
            reexecute: makes one again.
            meter: counts audits.

        Raises:
            UsageError: `share` is no number from 0 to 1.
        """
        check_number(share, "audit", 0, 1)
        self._share = share
        self._meter = meter
        self._checker = Checker(graph, reexecute, by="an audit", on_difference=self._differed)
        self._lock = threading.RLock()  # not taken by way of the Condition: a signal could come in between
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[int] = deque()
        self._known: set[int] = set()
        self._busy = False
        self._closed = False
        self._worker: threading.Thread | None = None

    def answered(self, edge: Edge) -> None:
        """Takes note that an edge answered a call; its audit, if there is to be one, waits its turn."""
        chosen = edge.comparable and self._share and random.random() < self._share
        if not chosen or edge.id in self._known:
            return
        with self._lock:
            if self._closed or edge.id in self._known or len(self._waiting) >= BACKLOG:
                return
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known.add(edge.id)
            self._waiting.append(edge.id)
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="tvsnap-audit", daemon=True)
                self._worker.start()
            self._changed.notify_all()

    @property
    def backlog(self) -> int:
        """How many calls wait to be made again."""
        return len(self._waiting)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until all that was to be audited so far has been.

        Args:
            timeout: seconds; None to wait as long as it takes.

        Returns:
            Whether it has been.
        """
        with self._lock:
            return self._changed.wait_for(lambda: self._closed or not (self._waiting or self._busy), timeout)

    def report(self) -> CheckReport:
        """Returns what the audits found so far; `interrupted` if some still wait."""
        with self._lock:
            left = bool(self._waiting) or self._busy
        return self._checker.report(interrupted=left)

    def close(self) -> None:
        """Begins no more audits. One under way ends with its sandbox; see `join`."""
        with self._lock:
            self._closed = True
            self._checker.stop()
            self._changed.notify_all()

    def join(self) -> None:
        """Waits for the audit under way, once `close` was called and its sandbox has ended."""
        if self._worker is not None:
            self._worker.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._closed or self._waiting)
                if self._closed:
                    return
                id = self._waiting.popleft()
                self._busy = True
            try:
                self._checker.check(id)
                self._meter.add(audited=1)
            except Exception as error:  # an audit that fails must not end the audits, nor pass unseen
                _log.warning("an audit failed: %s", error)
            finally:
                with self._lock:
                    self._busy = False
                    self._changed.notify_all()

    def _differed(self, found: Difference) -> None:
        self._meter.add(audit_differences=1)
        _log.warning(
            "an audit found an answer that cannot be relied on, given %d times until now: %s in state %s %s",
            found.edge.hits,
            found.edge.call.brief,
            found.edge.state[:12],
            found.words,
        )
