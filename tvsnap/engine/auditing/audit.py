"""Audits: a share of the calls that the graph answered are made again in the background, and compared.

Answers that were given cannot be taken back; but a wrong one is given to nobody else, and a warning is logged.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque

from tvsnap.engine.auditing.checking import Checker, CheckReport, Difference, Reexecute
from tvsnap.engine.events import Answered
from tvsnap.engine.meter import Meter
from tvsnap.graph import Graph
from tvsnap.model.arguments import check_number

BACKLOG = 1000  # answers that wait for their audit at most; further ones are not audited
REMEMBERED = 100_000  # calls audited by this process, which are not audited again

_log = logging.getLogger(__name__)


class Auditor:
    """Makes calls again that were answered from the graph, one at a time. Thread-safe."""

    def __init__(self, share: float, graph: Graph, reexecute: Reexecute, meter: Meter) -> None:
        """Audits a `share` of the answers, 0 to 1, each call once; raises UsageError for any other number."""
        check_number(share, "audit", 0, 1)
        self._share = share
        self._meter = meter
        self._checker = Checker(graph, reexecute, by="an audit", on_difference=self._differed)
        self._lock = threading.RLock()  # not created by the Condition: a signal could interrupt that
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[int] = deque()
        self._known: set[int] = set()
        self._busy = False
        self._closed = False
        self._worker: threading.Thread | None = None

    def answered(self, event: Answered) -> None:
        """Queues the record that has answered a call for an audit, if it is chosen for one."""
        edge = event.edge
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

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until everything queued so far was audited, at most `timeout` seconds; returns whether it was."""
        with self._lock:
            return self._changed.wait_for(lambda: self._closed or not (self._waiting or self._busy), timeout)

    def report(self) -> CheckReport:
        """Returns the results of the audits so far; `interrupted` if some still wait."""
        with self._lock:
            unfinished = bool(self._waiting) or self._busy
        return self._checker.report(interrupted=unfinished)

    def close(self) -> None:
        """Begins no more audits. One that is running ends with its sandbox; see `join`."""
        with self._lock:
            self._closed = True
            self._checker.stop()
            self._changed.notify_all()

    def join(self) -> None:
        """Waits for the audit that is running, once `close` was called and its sandbox has ended."""
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
            except Exception as error:  # a failed audit must neither end the audits nor go unnoticed
                _log.warning("an audit failed: %s", error)
            finally:
                with self._lock:
                    self._busy = False
                    self._changed.notify_all()

    def _differed(self, difference: Difference) -> None:
        self._meter.add(audit_differences=1)
        _log.warning(
            "an audit found an answer that cannot be relied on, given %d times until now: %s in state %s %s",
            difference.edge.hits,
            difference.edge.call.brief,
            difference.edge.state[:12],
            difference.words,
        )
