"""What checkpoints, forks and fresh starts of one backend cost on this machine, measured during operation."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from statistics import median
from typing import Literal

from tvsnap.model.tuning import Tuning, default_tuning

Kind = Literal["checkpoint", "fork", "start"]

# Seconds until something has been measured: those of a shell sandbox on a 2-core virtual machine.
DEFAULTS: Mapping[Kind, float] = {"checkpoint": 0.020, "fork": 0.020, "start": 0.008}
WINDOW = 101  # samples of which the median is taken
ENOUGH = 5  # samples after which the defaults are no longer used
OUTLIER = 10.0  # in medians: the longest duration that is reported to other processes
SAVED = 0.01  # of the time of calls: goes to checkpoints that are not worth it by themselves
BURST = 1.0  # seconds of such time that are available at the start, and that are saved up at most


class Costs:
    """Running medians, in seconds. Thread-safe.

    The measurements of earlier processes are read as sums from the graph's counters, and give the first values.
    """

    def __init__(
        self,
        backend: str,
        counters: Mapping[str, float] | None = None,
        *,
        held_up: Callable[[], bool] = lambda: False,
        tuning: Callable[[], Tuning] = default_tuning,
    ) -> None:
        """
        Args:
            backend: the backend's name: backends differ in their costs.
            counters: the graph's counters.
            held_up: tells whether rollouts are held up by what is computed for others.
            tuning: tells the cache's parameters; by default those that were chosen by hand.
        """
        self._held_up = held_up
        self._tuning = tuning
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
    def tuning(self) -> Tuning:
        """The parameters of the cache at present."""
        return self._tuning()

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

        A token bucket: each executed call adds `SAVED` of its duration, and each such checkpoint takes its duration
        out. It allows a few short rollouts to be kept completely, as people who try the cache out expect. There is none
        while many rollouts want the processors, unless the policy records everything.
        """
        return 0.0 if self._held_up() else self._allowance_s

    def worked(self, seconds: float) -> None:
        """Notes that a call was executed.

        Args:
            seconds: how long it took.
        """
        with self._lock:
            self._allowance_s = min(self._allowance_s + SAVED * seconds, BURST)

    def spent(self, seconds: float) -> None:
        """Notes that a checkpoint of an unproven state was taken.

        Args:
            seconds: how long it took.
        """
        with self._lock:
            self._allowance_s -= seconds

    def add(self, kind: Kind, seconds: float) -> None:
        """Adds a measurement.

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
        """Returns what must be added to the graph's counters since the last time."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
        return unsaved
