"""Sandboxes that run beside rollouts which were only answered, where something runs by itself.

What a rollout has waited counts in such a state: when it makes a call that nobody has made, the sandbox must have run
as long as the rollout has waited. So where a rollout stays for a moment in such a state without a sandbox, which it
does while its model thinks, one is forked for it; else the wait would have to be made up for when the call comes.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvsnap.rollout import Rollout

PATIENCE = 0.25  # seconds: a rollout that is answered at once again, as in a replay, needs no sandbox


class Companions:
    """Sees to it that rollouts of one cache have their sandboxes in time. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # not taken by way of the Condition: a signal could come in between
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[tuple[float, weakref.ref[Rollout], str]] = deque()  # by the time that they are due
        self._worker: threading.Thread | None = None
        self._closed = False

    def expect(self, rollout: Rollout, state: str) -> None:
        """Says that a rollout has been answered, and stands without a sandbox where something runs by itself."""
        with self._lock:
            if self._closed:
                return
            self._waiting.append((time.monotonic() + PATIENCE, weakref.ref(rollout), state))
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="tvsnap-companions", daemon=True)
                self._worker.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Forks no more, once the fork under way is done; safe to repeat."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
        if self._worker is not None:
            self._worker.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._closed and not self._waiting:
                    self._changed.wait()
                if self._closed:
                    return
                due, reference, state = self._waiting[0]
                left = due - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                self._waiting.popleft()
            rollout = reference()
            if rollout is not None:
                with contextlib.suppress(Exception):  # it is then forked when the call comes, or the caller is told
                    rollout.accompany(state)
            del rollout
