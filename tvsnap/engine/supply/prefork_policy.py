"""Predicts the sandboxes that will soon be needed, and decides how many of each kind to keep ready."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

HOLD = 30.0  # seconds for which an arrival counts in full: rollouts of one batch begin together, batches in turn
HALF_LIFE_S = 30.0  # seconds after `HOLD` in which the weight of an arrival halves
HALF_LIVES = 6  # after which an arrival does not count any more
TOGETHER = 2.0  # seconds within which arrivals count as simultaneous, at least
PATTERN = 2.0  # arrivals after which more are likely: most states are needed once and never again
INCUMBENCY = 2.0  # the weight of a sandbox that was made ahead, relative to one that is to be made
REMEMBERED = 256  # arrivals of each kind

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Demand(Generic[K]):
    """The demand for one kind of sandbox.

    Attributes:
        expected: the approximate number that will be needed at once.
        cost_s: seconds that making one takes, which a ready one saves.
    """

    key: K
    expected: float
    cost_s: float


@dataclass(slots=True)
class _History:
    """The times at which one kind of sandbox was needed, and those at which the need was predicted; oldest first."""

    needed: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    foretold: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class Needs(Generic[K]):
    """Remembers the kinds of sandboxes that were needed lately. Times are seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._histories: dict[K, _History] = {}

    def needed(self, key: K, now: float) -> None:
        """Notes that a sandbox of a kind was needed, predicted or not."""
        history = self._histories.setdefault(key, _History())
        history.needed.append(now)
        self.withdraw(key)

    def withdraw(self, key: K) -> None:
        """Notes that one sandbox less of a kind is expected, if any was."""
        history = self._histories.get(key)
        if history is not None and history.foretold:
            history.foretold.popleft()

    def expect(self, key: K, now: float, count: int = 1) -> None:
        """Notes that `count` sandboxes of a kind will soon be needed."""
        self._histories.setdefault(key, _History()).foretold.extend([now] * min(count, REMEMBERED))

    def forget(self, key: K) -> None:
        """Forgets a kind."""
        self._histories.pop(key, None)

    def expected(self, now: float, refill_s: float) -> dict[K, float]:
        """Returns the approximate number of each kind that will soon be needed at once; forgets old arrivals.

        That is the number needed lately, if the kind was needed more than once, plus the predicted ones. Arrivals
        within `refill_s`, the seconds in which taken sandboxes are replaced, count as simultaneous. An arrival counts
        half `HALF_LIFE_S` seconds after `HOLD`.
        """
        expected = {}
        for key, history in list(self._histories.items()):
            for times in (history.needed, history.foretold):
                while times and now - times[0] > HOLD + HALF_LIVES * HALF_LIFE_S:
                    times.popleft()
            if not history.needed and not history.foretold:
                del self._histories[key]
                continue
            recent = [(time, _weight(now - time)) for time in history.needed]
            pattern = sum(weight for _, weight in recent) >= PATTERN
            foretold = sum(_weight(now - time) for time in history.foretold)
            expected[key] = (_peak(recent, max(refill_s, TOGETHER)) if pattern else 0.0) + foretold
        return expected


def _peak(arrivals: list[tuple[float, float]], within_s: float) -> float:
    """Returns the greatest sum of weights of arrivals (time, weight; oldest first) within `within_s` seconds."""
    peak = total = 0.0
    first = 0
    for time, weight in arrivals:
        total += weight
        while time - arrivals[first][0] > within_s:
            total -= arrivals[first][1]
            first += 1
        peak = max(peak, total)
    return peak


def _weight(age: float) -> float:
    """Returns the weight of an arrival `age` seconds ago, 0 to 1."""
    return 1.0 if age <= HOLD else 0.5 ** ((age - HOLD) / HALF_LIFE_S)


def plan(
    demands: Iterable[Demand[K]],
    budget: int,
    ready: Mapping[K, int] | None = None,
) -> dict[K, int]:
    """Returns the number of sandboxes of each kind to keep ready, the most useful kind first.

    The `budget` is distributed one by one, each time to the kind for which one more is worth most (D'Hondt's method):
    the n-th sandbox of a kind is worth the time it saves, times the number expected, divided by n. No kind gets more
    than its expected number.
    """
    ready = ready or {}
    wanted = {demand.key: demand for demand in demands}
    chosen: dict[K, int] = {}

    def worth(demand: Demand[K]) -> float:
        nth = chosen.get(demand.key, 0) + 1
        there = INCUMBENCY if nth <= ready.get(demand.key, 0) else 1.0
        return there * demand.cost_s * demand.expected / nth

    for _ in range(budget):
        open_ones = [demand for demand in wanted.values() if demand.expected >= chosen.get(demand.key, 0) + 1]
        if not open_ones:
            break
        best = max(open_ones, key=worth)
        chosen[best.key] = chosen.get(best.key, 0) + 1
    return chosen
