"""What to fork ahead of time: which sandboxes will soon be needed, and how many of each are worth keeping ready."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

HOLD = 30.0  # seconds for which an arrival counts in full: rollouts of one batch begin side by side, batches in turn
HALF_LIFE = 30.0  # seconds after which it then counts for half, a quarter, ...
LIFETIME = HOLD + 6 * HALF_LIFE  # seconds after which it counts for nothing
TOGETHER = 2.0  # seconds, at least, within which what comes comes at once: rollouts that begin together do not in step
PATTERN = 2.0  # arrivals from which on more are likely: most states are needed once and never again
REMEMBERED = 256  # arrivals of each kind
INCUMBENT = 2.0  # how much more one that is ready counts than one to be made: to replace it costs a fork

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Demand(Generic[K]):
    """What is wanted of one kind of sandbox.

    Attributes:
        key: which kind.
        expected: how many will be needed at once, about.
        cost_s: seconds that making one takes, and that one that is ready saves.
    """

    key: K
    expected: float
    cost_s: float


@dataclass(slots=True)
class _History:
    """When one kind of sandbox was needed, and when it was foretold that it would be; oldest first."""

    needed: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    foretold: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class Needs(Generic[K]):
    """Remembers which kinds of sandboxes were needed lately. Times are seconds of any clock that never goes back."""

    def __init__(self) -> None:
        self._histories: dict[K, _History] = {}

    def needed(self, key: K, now: float) -> None:
        """Takes note that a sandbox of a kind was needed; it may have been foretold."""
        history = self._histories.setdefault(key, _History())
        history.needed.append(now)
        if history.foretold:
            history.foretold.popleft()

    def expect(self, key: K, now: float) -> None:
        """Takes note that a sandbox of a kind will soon be needed."""
        self._histories.setdefault(key, _History()).foretold.append(now)

    def forget(self, key: K) -> None:
        """Forgets a kind."""
        self._histories.pop(key, None)

    def expected(self, now: float, refill_s: float) -> dict[K, float]:
        """Returns how many of each kind will soon be needed at once, about; forgets what was long ago.

        As many as lately were, if they were needed more than once at all; and as many as were foretold.

        Args:
            now: the present time.
            refill_s: seconds in which those that were taken are made again: what comes in that time comes at once.
        """
        expected = {}
        for key, history in list(self._histories.items()):
            for times in (history.needed, history.foretold):
                while times and now - times[0] > LIFETIME:
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
    """Returns the greatest sum of weights of arrivals that came within some seconds.

    Args:
        arrivals: the time and the weight of each, oldest first.
        within_s: seconds.
    """
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
    """Returns how much an arrival `age` seconds ago counts, 0 to 1."""
    return 1.0 if age <= HOLD else 0.5 ** ((age - HOLD) / HALF_LIFE)


def plan(demands: Iterable[Demand[K]], budget: int, ready: Mapping[K, int] | None = None) -> dict[K, int]:
    """Returns how many sandboxes of each kind to keep ready, the most useful kind first.

    The places are dealt out one by one, each to the kind for which one more is worth most, as seats are by the method
    of D'Hondt: a kind's n-th is worth the time it saves, times the number expected, by n. No kind gets more than are
    expected of it.

    Args:
        demands: what is wanted.
        budget: how many to keep ready in all.
        ready: how many are ready now.
    """
    ready = ready or {}
    wanted = {demand.key: demand for demand in demands}
    chosen: dict[K, int] = {}

    def worth(demand: Demand[K]) -> float:
        nth = chosen.get(demand.key, 0) + 1
        there = INCUMBENT if nth <= ready.get(demand.key, 0) else 1.0
        return there * demand.cost_s * demand.expected / nth

    for _ in range(budget):
        open_ones = [demand for demand in wanted.values() if demand.expected >= chosen.get(demand.key, 0) + 1]
        if not open_ones:
            break
        best = max(open_ones, key=worth)
        chosen[best.key] = chosen.get(best.key, 0) + 1
    return chosen
