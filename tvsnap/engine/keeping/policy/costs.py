"""The costs of checkpoints, forks and fresh starts of one backend on this machine, measured during operation."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from statistics import median
from typing import Literal

Kind = Literal["checkpoint", "fork", "start"]

# Seconds until something has been measured: those of a shell sandbox on a 2-core virtual machine.
DEFAULTS: Mapping[Kind, float] = {"checkpoint": 0.020, "fork": 0.020, "start": 0.008}
WINDOW = 101  # samples of which the median is taken
ENOUGH = 5  # samples after which the defaults are no longer used
# Defaults: a higher mean of earlier processes is ignored, because costs that seem high are rarely measured again.
DEAREST = 2.5
OUTLIER = 10.0  # medians: the longest duration that is reported to other processes
THINKING_SHARE = 0.15  # of the time for which agents think may be spent on checkpoints while processors are short
WAITING_SHARE = 0.05  # of the time for which calls wait without computing may be spent likewise
BURST = 0.25  # seconds of such time that are available at the start, and the most that is saved up
LATEST = 0.1  # weight of the latest pause between two calls of a rollout in their average


class Costs:
    """Running medians, in seconds. Thread-safe.

    The measurements of earlier processes are read as sums from the graph's counters, and give the first values, unless
    these are high: the machine may have been busy then.
    """

    def __init__(
        self,
        backend: str,
        counters: Mapping[str, float] | None = None,
        *,
        short: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
            backend: the backend's name: backends differ in their costs.
            counters: the graph's counters.
            short: returns whether processors are short.
        """
        self._short = short
        counters = counters or {}
        self._names = {kind: f"cost.{backend}.{kind}" for kind in DEFAULTS}
        self._lock = threading.Lock()
        self._samples: dict[Kind, deque[float]] = {kind: deque(maxlen=WINDOW) for kind in DEFAULTS}
        self._medians: dict[Kind, float] = dict(DEFAULTS)
        self._unsaved: dict[str, float] = {}
        self._allowance_s = BURST
        self._pause_s = 0.0
        for kind in DEFAULTS:
            count = counters.get(f"{self._names[kind]}.n", 0.0)
            if count >= ENOUGH:
                mean = counters[f"{self._names[kind]}.s"] / count
                self._medians[kind] = min(mean, DEAREST * DEFAULTS[kind])

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
    def processors_short(self) -> bool:
        """Whether work for one rollout delays others now."""
        return self._short()

    @property
    def pause_s(self) -> float:
        """Seconds that agents think between two calls, on average."""
        return self._pause_s

    @property
    def allowance_s(self) -> float:
        """Seconds of checkpoints that thinking agents and waiting calls have paid for; below 0 if overdrawn.

        A token bucket: each pause between two calls adds `THINKING_SHARE` of its duration, each call adds
        `WAITING_SHARE` of the time for which it did not compute, and each checkpoint that is taken on allowance takes
        its duration out.
        """
        return self._allowance_s

    def paused(self, seconds: float) -> None:
        """Notes that an agent has made a call.

        Args:
            seconds: the time for which it thought after the call before.
        """
        with self._lock:
            self._pause_s += LATEST * (seconds - self._pause_s)
            self._allowance_s = min(self._allowance_s + THINKING_SHARE * seconds, BURST)

    def waited(self, seconds: float) -> None:
        """Notes that a call was executed.

        Args:
            seconds: the part of its time in which it did not compute.
        """
        with self._lock:
            self._allowance_s = min(self._allowance_s + WAITING_SHARE * seconds, BURST)

    def spent(self, seconds: float) -> None:
        """Notes that a checkpoint was taken on allowance.

        Args:
            seconds: its duration.
        """
        with self._lock:
            self._allowance_s -= seconds

    def add(self, kind: Kind, seconds: float) -> None:
        """Adds a measurement.

        Args:
            kind: `checkpoint`, `fork` or `start`.
            seconds: its duration.
        """
        with self._lock:
            samples = self._samples[kind]
            samples.append(seconds)
            if len(samples) >= ENOUGH:
                self._medians[kind] = median(samples)
            sample = min(seconds, OUTLIER * self._medians[kind])
            for name, value in ((f"{self._names[kind]}.n", 1.0), (f"{self._names[kind]}.s", sample)):
                self._unsaved[name] = self._unsaved.get(name, 0.0) + value

    def take_unsaved(self) -> Mapping[str, float]:
        """Returns the amounts to add to the graph's counters since the last time."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
        return unsaved
