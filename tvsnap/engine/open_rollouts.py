"""The rollouts of a cache that are open, and those that nobody refers to any more."""

from __future__ import annotations

import contextlib
import threading
import weakref
from queue import Empty, SimpleQueue

from tvsnap.engine.rollout import RolloutEngine
from tvsnap.model.errors import UsageError


class OpenRollouts:
    """The rollouts of one cache that are open. Thread-safe.

    Attributes:
        dropped: receives rollouts that nobody refers to any more, to be closed.
        closed: the cache is closed, or being closed.
    """

    def __init__(self) -> None:
        self.dropped: SimpleQueue[RolloutEngine] = SimpleQueue()
        self.closed = False
        self._lock = threading.Lock()
        self._rollouts: weakref.WeakSet[RolloutEngine] = weakref.WeakSet()

    def add(self, rollout: RolloutEngine) -> None:
        """Adds a rollout that begins; raises UsageError if the cache is closed."""
        self.end_dropped()
        with self._lock:
            self.check()
            self._rollouts.add(rollout)

    def remove(self, rollout: RolloutEngine) -> None:
        """Removes a rollout that has ended."""
        with self._lock:
            self._rollouts.discard(rollout)

    def all(self) -> list[RolloutEngine]:
        """Returns the open rollouts."""
        with self._lock:
            return list(self._rollouts)

    def check(self) -> None:
        """Raises UsageError if the cache is closed."""
        if self.closed:
            raise UsageError("the cache is closed")

    def close(self) -> list[RolloutEngine] | None:
        """Lets no more begin; returns the open ones, to be ended, or None if it was called before."""
        with self._lock:
            before, self.closed = self.closed, True
            return None if before else list(self._rollouts)

    def end_dropped(self) -> None:
        """Ends the rollouts that nobody refers to any more and nobody has closed."""
        with contextlib.suppress(Empty):
            while True:
                rollout = self.dropped.get_nowait()
                with contextlib.suppress(Exception):  # nobody is left to receive the error
                    rollout.close()
