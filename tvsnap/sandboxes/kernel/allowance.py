"""Limits the processor time for each inspection ("look") of a sandbox from outside, whatever the sandbox contains.

A sandbox decides how much it contains: files, descriptors, mappings, and their contents. A look that would take
longer, or that finds more of something than its limit, ends with `NotSeen`. Then an observation reports that everything
may have changed, and no checkpoint is made: the state is private to the rollout, which goes on in its sandbox. The
limit is on processor time, so that other load on the machine makes no difference.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tvsnap.model.errors import NotCheckpointable
from tvsnap.model.observations import Observation

LONGEST = 10.0
"""Seconds of processor time of the thread that looks, and of each program that it starts."""
SHORTEST = 1.0
"""Seconds for a look at a sandbox if earlier ones have repeatedly been too long."""


class NotSeen(NotCheckpointable):
    """A look would exceed its limit. The sandbox goes on."""


class _Present(threading.local):
    end = math.inf  # of this thread's current look, by time.thread_time()


_present = _Present()


class Looks:
    """The looks at one sandbox. Each one that was too long halves the time of the next one, until one succeeds.

    So a sandbox that cannot be inspected does not cost more with each call.
    """

    def __init__(self, longest: float = 0.0) -> None:
        """`longest` is the limit of a look in seconds; `LONGEST` by default."""
        self._longest = longest or LONGEST
        self._seconds = self._longest

    @contextmanager
    def one(self) -> Iterator[None]:
        """Limits a block that looks at the sandbox; a look within another one is part of that.

        Raises NotSeen if it took too long, or if there was too much of something.
        """
        if _present.end != math.inf:
            yield
            return
        _present.end = time.thread_time() + self._seconds
        try:
            yield
            self._seconds = self._longest
        except NotSeen:
            self._seconds = max(self._seconds / 2, SHORTEST)
            raise
        finally:
            _present.end = math.inf


def go_on() -> None:
    """Raises NotSeen if this thread's look has taken too long; to be called regularly while looking at much."""
    if time.thread_time() > _present.end:
        raise too_long()


@contextmanager
def uncounted() -> Iterator[None]:
    """Excludes a block's processor time from the limit: it copies data without inspecting it."""
    began = time.thread_time()
    try:
        yield
    finally:
        _present.end += time.thread_time() - began


def left() -> float:
    """Returns how many seconds of processor time this thread's look has left."""
    return min(_present.end - time.thread_time(), LONGEST)


def seconds() -> int:
    """Returns how many whole seconds of processor time a program started for a look may take."""
    return max(1, math.ceil(left()))


def too_long() -> NotSeen:
    return NotSeen("there is more in the sandbox than can be looked at in the time that there is for it")


def unseen(reason: str) -> Observation:
    """Returns the observation of a sandbox that could not be inspected: everything counts as changed."""
    unknown = secrets.token_hex()
    return Observation(unknown, unknown, unknown, active=f"it cannot be looked at ({reason})", quiet_s=0.0)
