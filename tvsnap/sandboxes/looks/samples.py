"""Reads how much processor time sandboxes have used, again and again, to tell later since when nothing has run there.

A sandbox's processor time is the same at two moments only if nothing has run between them, even what has ended since.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable

_FIRST = 0.1  # seconds until the first sample
_FACTOR = 1.5  # by which each is later than the one before
_LAST = 3600.0  # seconds; nobody thinks for longer


class Samples:
    """Samples of the processor time that one sandbox has used, since a look at it. Thread-safe."""

    def __init__(self, used: Callable[[], float]) -> None:
        """
        Args:
            used: returns the seconds of processor time that all of its processes have used so far; 0 if not known.
        """
        self._used = used
        self._lock = threading.Lock()
        self._taken: list[tuple[float, float]] = []  # the time of each, by time.monotonic(), and the processor time
        self._number = 0  # of the present series

    def begin(self) -> None:
        """Begins a new series with a sample of now; `_LAST` seconds later no more are taken."""
        with self._lock:
            self._number += 1
            number = self._number
            self._taken = []
        if self.take(number):
            _sampler.add(self, number)

    def end(self) -> None:
        """Ends the present series."""
        with self._lock:
            self._number += 1
            self._taken = []

    def take(self, number: int) -> bool:
        """Takes a sample; returns whether the series with this number goes on."""
        used = self._used()
        with self._lock:
            if number != self._number or not used:
                return False
            if not self._taken or self._taken[-1][1] != used:
                self._taken.append((time.monotonic(), used))
            return True

    def still_since(self) -> float | None:
        """Returns the time, by time.monotonic(), since when nothing has run for certain; None if there is none."""
        used = self._used()
        with self._lock:
            return next((at for at, before in reversed(self._taken) if before == used), None)


class _Sampler:
    """Takes the samples of all sandboxes, in one thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._added = itertools.count()  # tells entries of one time apart
        # When, which of the entries, the series, its age then, and whose it is.
        self._due: list[tuple[float, int, int, float, weakref.ref[Samples]]] = []
        self._thread: threading.Thread | None = None

    def add(self, samples: Samples, number: int, age: float = _FIRST, passed: float = 0.0) -> None:
        """Has the sample of a series taken at which the series has an `age`, `passed` seconds of which are over."""
        with self._changed:
            entry = (time.monotonic() + age - passed, next(self._added), number, age, weakref.ref(samples))
            heapq.heappush(self._due, entry)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tvsnap-samples", daemon=True)
                self._thread.start()
            elif self._due[0] is entry:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._due[0][0] > time.monotonic():
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                _, _, number, age, reference = heapq.heappop(self._due)
            samples = reference()
            if samples is not None and samples.take(number) and age < _LAST:
                self.add(samples, number, _FACTOR * age, age)
            del samples


_sampler = _Sampler()


def _begin_anew() -> None:
    """Leaves the sandboxes, the lock and the thread to the process that this one was forked from."""
    global _sampler
    _sampler = _Sampler()


os.register_at_fork(after_in_child=_begin_anew)
