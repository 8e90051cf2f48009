"""What checkpoints, forks and fresh starts of one backend cost on this machine, learned while it works."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Literal

Kind = Literal["checkpoint", "fork", "start"]

# Seconds until something has been measured: those of a shell sandbox on a 2-core virtual machine.
DEFAULTS: Mapping[Kind, float] = {"checkpoint": 0.020, "fork": 0.020, "start": 0.008}
WINDOW = 101  # samples that a median is made of
ENOUGH = 5  # samples from which on the defaults count for nothing
OUTLIER = 10.0  # what is handed on to other processes is at most so many medians
SHARE = 0.15  # of the time that calls take, for which the unproven state that they lead to is kept
SAVED = 0.01  # of the time that calls take, for keeping what is not worth it by itself
BURST = 1.0  # seconds of that which are there at the start, and which are saved up at most


class Costs:
    """Running medians, in seconds. Thread-safe.

    What earlier processes measured comes in as sums kept in the graph's counters, and is the first value here.
    """

    def __init__(self, backend: str, counters: Mapping[str, float] | None = None) -> None:
        """
        Args:
            backend: the backend's name: what costs nothing in one may be dear in another.
            counters: the graph's counters.
        """
        counters = counters or {}
        self._names = {kind: f"cost.{backend}.{kind}" for kind in DEFAULTS}
        self._lock = threading.Lock()
        self._samples: dict[Kind, deque[float]] = {kind: deque(maxlen=WINDOW) for kind in DEFAULTS}
        self._medians: dict[Kind, float] = dict(DEFAULTS)
        self._unsaved: dict[str, float] = {}
        self._allowance_s = BURST
        for kind in DEFAULTS:
            count = counters.get(f"{self._names[kind]}.n", 0.0)
            if count >= ENOUGH:
                self._medians[kind] = counters[f"{self._names[kind]}.s"] / count

    @property
    def checkpoint_s(self) -> float:
        """Seconds that a checkpoint takes."""
        return self._medians["checkpoint"]

    @property
    def fork_s(self) -> float:
        """Seconds that a fork of a snapshot takes."""
        return self._medians["fork"]

    @property
    def start_s(self) -> float:
        """Seconds that a fresh sandbox takes."""
        return self._medians["start"]

    @property
    def allowance_s(self) -> float:
        """Seconds of checkpoints of unproven states that this process' calls have paid for; below 0 if overdrawn.

        A token bucket: each executed call pays in `SAVED` of its duration, and each such checkpoint takes out what it
        took. It lets a few short rollouts be kept whole, which is what people expect who try something.
        """
        return self._allowance_s

    def worked(self, seconds: float) -> None:
        """Takes note that a call was executed.

        Args:
            seconds: how long it took.
        """
        with self._lock:
            self._allowance_s = min(self._allowance_s + SAVED * seconds, BURST)

    def spent(self, seconds: float) -> None:
        """Takes note that a checkpoint of an unproven state was taken.

        Args:
            seconds: how long it took.
        """
        with self._lock:
            self._allowance_s -= seconds

    def add(self, kind: Kind, seconds: float) -> None:
        """Takes a measurement in.

        Args:
            kind: what was measured: `checkpoint`, `fork` or `start`.
            seconds: how long it took.
        """
        with self._lock:
            samples = self._samples[kind]
            samples.append(seconds)
            if len(samples) >= ENOUGH:
                self._medians[kind] = median(samples)
            kept = min(seconds, OUTLIER * self._medians[kind])
            for name, value in ((f"{self._names[kind]}.n", 1.0), (f"{self._names[kind]}.s", kept)):
                self._unsaved[name] = self._unsaved.get(name, 0.0) + value

    def take_unsaved(self) -> Mapping[str, float]:
        """Returns what to add to the graph's counters since the last time."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
        return unsaved
