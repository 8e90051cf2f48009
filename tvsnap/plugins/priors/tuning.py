"""The cache's own parameters, adapted while it is used."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from tvsnap import UsageError
from tvsnap.plugins.priors.arguments import check_number, check_whole
from tvsnap.plugins.priors.cache import PriorCache
from tvsnap.plugins.priors.distributions import LARGEST_JS

TRIAL = 0.08
"""How far a trial goes from the present parameters, of the range between their bounds."""
STEP = 0.10
"""How far the first step goes at most, of the same range; later ones are shorter."""
SHORTENING = 0.25
"""Steps become shorter with the number of steps to the power of this."""
SCALE_MEMORY = 0.8
"""How much of the usual difference between two trials is that of earlier ones."""
WANTED_AGAIN, NOT_WANTED = 0.01, 0.001
"""Shares of lookups that ask for what was evicted: from the first on the capacity grows, below the other it shrinks."""
GROWTH, SHRINKAGE = 1.25, 0.95
LARGEST_RETURN = 1e100
"""Returns are at most as far from 0, so that no sum or difference of them overflows."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What parameters may become.

    Attributes:
        delta: the least and the largest cosine of similar states, above 0 and below 1.
        refresh: the least and the largest probability of a refresh, above 0: without any, errors would not be noticed.
        capacity: the least and the largest number of answers.

    Raises:
        UsageError: they are not in order, or make no sense.
    """

    delta: tuple[float, float] = (0.80, 0.999)
    refresh: tuple[float, float] = (0.005, 0.20)
    capacity: tuple[int, int] = (1_000, 10_000_000)

    def __post_init__(self) -> None:
        fits = (
            0.0 < self.delta[0] <= self.delta[1] < 1.0
            and 0.0 < self.refresh[0] <= self.refresh[1] <= 1.0
            and 1 <= self.capacity[0] <= self.capacity[1]
        )
        if not fits:
            raise UsageError(
                "bounds must be pairs in order, of delta above 0 and below 1, of refresh above 0 and at most 1, and of "
                f"capacity at least 1, not delta={self.delta!r}, refresh={self.refresh!r}, capacity={self.capacity!r}"
            )


@dataclass(frozen=True, slots=True)
class Weights:
    """What counts how much in the surrogate, in units of return.

    Attributes:
        asked: of the share of lookups for which the model was asked, 0 to 1.
        second: of a second of a lookup, the model's time included.
        divergence: of the divergence of answers of similar states, as a share of the largest there is, for the share of
            lookups that they answer.

    Raises:
        UsageError: one is negative or not finite.
    """

    asked: float = 0.5
    second: float = 0.0
    divergence: float = 1.0

    def __post_init__(self) -> None:
        for name in ("asked", "second", "divergence"):
            check_number(getattr(self, name), f"the weight {name}", 0.0, LARGEST_RETURN)


@dataclass(frozen=True, slots=True)
class Window:
    """Some rollouts with the same parameters.

    Attributes:
        delta: of the cache.
        refresh: of the cache.
        capacity: of the cache.
        mean_return: of the rollouts.
        asked: the share of lookups for which the model was asked.
        second: seconds of a lookup.
        near: the share of lookups that a similar state answered.
        divergence: that refreshes of similar states have found, beyond what the model's own chance makes (the mean of
            all refreshes of exact states so far), in nats; 0 without any.
        surrogate: what it comes to.
    """

    delta: float
    refresh: float
    capacity: int
    mean_return: float
    asked: float
    second: float
    near: float
    divergence: float
    surrogate: float


@dataclass
class Tuner:
    """Adapts the parameters of a cache to how well an agent does.

    The surrogate of a window is the mean return, less the weighted share of lookups that ask the model, their time, and
    the audited divergence of those that a similar state answers. Threshold and refresh rate follow its gradient, as two
    windows with parameters on both sides of the present ones estimate it (simultaneous perturbation, Spall 1992). The
    capacity grows while what was evicted is asked for again, and shrinks while it is not: trying a smaller one would
    lose answers. The paper leaves the method open; this one costs a few operations for each rollout.

    What is switched off stays off: a `delta` above 1 (exact states only) and a `refresh` of 0 are left as they are.

    Attributes:
        cache: whose parameters are adapted. Other processes that use the same file have parameters of their own.
        bounds: what the parameters may become.
        weights: what counts how much.
        rollouts: how many make a window, at least 1.
        seed: of the directions that are tried.
        windows: those that have ended, oldest first.

    Raises:
        UsageError: a window would have no rollout, or a part of one.
    """

    cache: PriorCache
    bounds: Bounds = field(default_factory=Bounds)
    weights: Weights = field(default_factory=Weights)
    rollouts: int = 10
    seed: int = 0
    windows: list[Window] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        check_whole(self.rollouts, "rollouts")
        self._random = random.Random(self.seed)
        # Both are adapted on logarithmic scales: of 1 - delta, and of the rate.
        self._place = [
            _place(1.0 - self.cache.delta, 1.0 - self.bounds.delta[1], 1.0 - self.bounds.delta[0]),
            _place(self.cache.refresh, *self.bounds.refresh),
        ]
        low, high = self.bounds.capacity
        self.cache.capacity = min(high, max(low, self.cache.capacity))
        self._steps = 0
        self._scale = 0.0
        self._returns: list[float] = []
        self._side, self._direction, self._first = 1, [1, 1], 0.0
        self._before = self.cache.counts()
        self._try(1)

    def record(self, rollout_return: float) -> None:
        """Takes note of a rollout that has ended; at the end of a window, parameters change.

        Args:
            rollout_return: the sum of the rollout's rewards.

        Raises:
            UsageError: it is no finite number, or beyond `LARGEST_RETURN`.
        """
        check_number(rollout_return, "the return of a rollout", -LARGEST_RETURN, LARGEST_RETURN)
        self._returns.append(rollout_return)
        if len(self._returns) < self.rollouts:
            return
        window = self._measured()
        self.windows.append(window)
        self._returns.clear()
        if self._side == 1:
            self._first = window.surrogate
            self._try(-1)
        else:
            self._step(self._first - window.surrogate)
            self._try(1)

    def settle(self) -> None:
        """Ends trials: the cache gets the parameters that were found, until the next window begins with `record`."""
        self._apply(self._place)

    def _try(self, side: int) -> None:
        self._side = side
        if side == 1:
            self._direction = [self._random.choice((-1, 1)) for _ in self._place]
        self._apply([at + side * TRIAL * way for at, way in zip(self._place, self._direction, strict=True)])

    def _step(self, difference: float) -> None:
        """Moves in the direction that was better, the further the larger the difference is beside the usual one."""
        self._scale = (
            SCALE_MEMORY * self._scale + (1.0 - SCALE_MEMORY) * abs(difference) if self._scale else abs(difference)
        )
        if self._scale == 0.0:
            return
        self._steps += 1
        length = STEP / self._steps**SHORTENING * max(-1.0, min(1.0, difference / self._scale))
        moved = (at + length * way for at, way in zip(self._place, self._direction, strict=True))
        self._place = [min(1.0, max(0.0, at)) for at in moved]

    def _apply(self, place: list[float]) -> None:
        distance, rate = (min(1.0, max(0.0, at)) for at in place)
        low, high = self.bounds.delta
        if self.cache.delta <= 1.0:
            self.cache.delta = min(high, max(low, 1.0 - _value(distance, 1.0 - high, 1.0 - low)))
        if self.cache.refresh > 0.0:
            self.cache.refresh = _value(rate, *self.bounds.refresh)

    def _measured(self) -> Window:
        now = self.cache.counts()
        counts = {name: value - self._before.get(name, 0.0) for name, value in now.items()}
        self._before = now
        lookups = counts.get("lookups", 0.0) or 1.0
        asked, second = counts.get("asked", 0.0) / lookups, counts.get("lookup_s", 0.0) / lookups
        near = counts.get("near", 0.0) / lookups
        divergence = _mean(counts, "near_divergence", "near_refreshes")
        exact = {name: now.get(name, 0.0) - now.get(f"near_{name}", 0.0) for name in ("divergence", "refreshes")}
        divergence = max(0.0, divergence - _mean(exact, "divergence", "refreshes"))
        mean = math.fsum(self._returns) / len(self._returns)
        weights = self.weights
        harm = near * divergence / LARGEST_JS
        surrogate = mean - weights.asked * asked - weights.second * second - weights.divergence * harm
        parameters = self.cache.delta, self.cache.refresh, self.cache.capacity
        window = Window(*parameters, mean, asked, second, near, divergence, surrogate)
        self._adapt_capacity(counts.get("evicted", 0.0), counts.get("wanted_again", 0.0) / lookups)
        return window

    def _adapt_capacity(self, evicted: float, wanted_again: float) -> None:
        factor = GROWTH if wanted_again >= WANTED_AGAIN else SHRINKAGE if evicted and wanted_again < NOT_WANTED else 1.0
        low, high = self.bounds.capacity
        if factor != 1.0:
            self.cache.capacity = min(high, max(low, round(self.cache.capacity * factor)))


def _mean(counts: Mapping[str, float], total: str, of: str) -> float:
    """Returns a total by how many it is of; 0 where there are none."""
    number = counts.get(of, 0.0)
    return counts.get(total, 0.0) / number if number else 0.0


def _place(value: float, low: float, high: float) -> float:
    """Returns where a value is between two bounds on a logarithmic scale, 0 to 1."""
    if high == low:
        return 0.0
    return min(1.0, max(0.0, math.log(max(value, 1e-12) / low) / math.log(high / low)))


def _value(place: float, low: float, high: float) -> float:
    """Returns the value at a place between two bounds."""
    return min(high, max(low, low * math.pow(high / low, place)))
