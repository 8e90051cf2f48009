"""For how long a sandbox may be looked at from outside: so much processor time for each look, whatever there is to see.

How much there is, a sandbox decides: files, descriptors, mappings, and what each of them is made of. A look that would
take longer, or that finds more of something than it is made for, ends with `NotSeen`. An observation then says that all
may have changed, and a checkpoint that there is none: the state is the rollout's own, which goes on in its sandbox.
Processor time is counted, so that it makes no difference how much else the machine has to do.
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
"""Seconds of processor time of the thread that looks, and of each program that it starts for that."""
SHORTEST = 1.0
"""Seconds that are left to a sandbox of which looks have not come to their end again and again."""


class NotSeen(NotCheckpointable):
    """There is more to look at than a look may take. The sandbox lives on."""


class _Present(threading.local):
    end = math.inf  # of the look that this thread is at, by time.thread_time()


_present = _Present()


class Looks:
    """The looks at one sandbox. Each that was too long leaves half as much time to the next one, until one ends well.

    So what a sandbox costs that nobody can look at does not grow with its calls as others' does.
    """

    def __init__(self, longest: float = 0.0) -> None:
        """Args: longest: seconds that a look may take; `LONGEST` by default."""
        self._longest = longest or LONGEST
        self._seconds = self._longest

    @contextmanager
    def one(self) -> Iterator[None]:
        """A block in which this thread looks at the sandbox; a look within another is a part of that.

        Raises:
            NotSeen: it took too long, or there was too much of something.
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
    """Called by whatever looks at what a sandbox may have much of, every now and then.

    Raises:
        NotSeen: the look that this thread is at has taken too long.
    """
    if time.thread_time() > _present.end:
        raise too_long()


@contextmanager
def uncounted() -> Iterator[None]:
    """A block in which this thread copies what it does not look at: the time that this takes does not count."""
    began = time.thread_time()
    try:
        yield
    finally:
        _present.end += time.thread_time() - began


def left() -> float:
    """Returns how much more processor time this thread may take for its look, seconds."""
    return min(_present.end - time.thread_time(), LONGEST)


def seconds() -> int:
    """Returns how much processor time a program may take that this thread starts for a look: whole seconds."""
    return max(1, math.ceil(left()))


def too_long() -> NotSeen:
    return NotSeen("there is more in the sandbox than can be looked at in the time that there is for it")


def unseen(reason: str) -> Observation:
    """Returns what is observed of a sandbox that could not be looked at: everything may be another than before."""
    unknown = secrets.token_hex()
    return Observation(unknown, unknown, unknown, active=f"it cannot be looked at ({reason})", quiet_s=0.0)
