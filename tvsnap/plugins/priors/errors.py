"""The errors of answers of similar states, by distance: measured when the model is asked all the same."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

from tvsnap.plugins.priors.distributions import LARGEST_JS

DISTANCES = tuple(2.0**power for power in range(-10, 2))
"""The largest distance, 1 - cosine, of each class: from one to the next it doubles, up to that of opposite vectors."""
CONFIDENCE = 0.95
"""The probability with which a mean is within its bound."""
WINDOW = 200
"""The share of lookups that are answered at a distance is taken over about as many lookups."""
COMPARED_EXACTLY = 0.25
"""So many answers of the same state are compared for one of a similar state, at most."""


@dataclass(slots=True)
class _Mean:
    """A mean of numbers from 0 to 1.

    Attributes:
        count: their number.
        total: their sum.
    """

    count: int = 0
    total: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value

    def upper(self) -> float:
        """Returns what its expectation is at most; 1 without any number."""
        return self._bound(1.0)

    def lower(self) -> float:
        """Returns what its expectation is at least; 0 without any number."""
        return self._bound(0.0)

    def _bound(self, end: float) -> float:
        """Returns Chernoff's bound on the side of `end`: it holds for all distributions on 0 to 1, and any count."""
        if not self.count:
            return end
        mean = min(1.0, self.total / self.count)
        within, beyond, most = mean, end, -math.log(1.0 - CONFIDENCE) / self.count
        for _ in range(30):  # halves the interval: to a billionth
            middle = (within + beyond) / 2.0
            if _divergence(mean, middle) <= most:
                within = middle
            else:
                beyond = middle
        return beyond


class Errors:
    """The errors of answers of similar states in comparisons, and the share of them that may be given. Thread-safe.

    The *error* of an answer is its Jensen-Shannon divergence from what the model says, as a share of the largest: 0 for
    the same, 1 for nothing in common. Whenever the model is asked, its answer is compared with that of the most similar
    state, also if that is too far away to be given, so that a measurement costs no question of its own. A bound on
    the mean error is kept for each class of distances, less what the model's own chance makes at least: the error of
    answers of the same state, which refreshes measure.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._same = _Mean()
        self._similar = [_Mean() for _ in DISTANCES]
        self._bounds = [1.0 for _ in DISTANCES]
        self._lookups = 0.0
        self._near = [0.0 for _ in DISTANCES]

    def compared(self, cosine: float | None, divergence: float) -> None:
        """Takes note of a comparison of an answer with what the model says.

        Args:
            cosine: the cosine of the two states' vectors; None if the answer was of the same state.
            divergence: the Jensen-Shannon divergence of the two, in nats.
        """
        with self._lock:
            mean = self._same if cosine is None else self._similar[_class(cosine)]
            mean.add(divergence / LARGEST_JS)
            chance = self._same.lower()
            self._bounds = [max(0.0, each.upper() - chance) for each in self._similar]

    def looked_up(self, cosine: float | None) -> None:
        """Takes note of a lookup.

        Args:
            cosine: the cosine of the most similar state; None if there is none, or the same state has an answer.
        """
        with self._lock:
            decay = 1.0 - 1.0 / WINDOW
            self._lookups = self._lookups * decay + 1.0
            self._near = [count * decay for count in self._near]
            if cosine is not None:
                self._near[_class(cosine)] += 1.0

    def bound(self, cosine: float) -> float:
        """Returns what the mean error of answers at a distance is at most, 0 to 1.

        Args:
            cosine: the cosine of the two states' vectors.
        """
        return self._bounds[_class(cosine)]

    def share(self, cosine: float, tolerance: float) -> float:
        """Returns the probability with which an answer at a distance may be given.

        The nearest distances come first: answers are given up to a distance at which their bounds, added up over all
        recent lookups, reach what is tolerated; at this distance, to a part.

        Args:
            cosine: the cosine of the two states' vectors.
            tolerance: the mean error over all lookups that is tolerated.
        """
        wanted = _class(cosine)
        with self._lock:
            budget = tolerance * self._lookups
            for bound, count in zip(self._bounds[:wanted], self._near, strict=False):
                budget -= bound * count
            if budget <= 0.0:
                return 0.0
            error = self._bounds[wanted] * max(1.0, self._near[wanted])  # the answer itself, too
            return 1.0 if error <= budget else budget / error

    def chance_wanted(self) -> float:
        """Returns which part of the rate of refreshes answers of the same state need, 0 to 1.

        They tell what the model's own chance makes, which matters only beside comparisons of similar states.
        """
        with self._lock:
            similar = sum(mean.count for mean in self._similar)
            return min(1.0, COMPARED_EXACTLY * similar / (1.0 + self._same.count))


def _class(cosine: float) -> int:
    return next((number for number, most in enumerate(DISTANCES) if 1.0 - cosine <= most), len(DISTANCES) - 1)


def _divergence(p: float, q: float) -> float:
    """Returns the Kullback-Leibler divergence of two coins in nats; infinity if q excludes what p does not."""
    if (p > 0.0 and q <= 0.0) or (p < 1.0 and q >= 1.0):
        return math.inf
    first = p * math.log(p / q) if p > 0.0 else 0.0
    return first + ((1.0 - p) * math.log((1.0 - p) / (1.0 - q)) if p < 1.0 else 0.0)
