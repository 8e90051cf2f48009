"""Posterior sampling: a prior over actions, corrected by what has been learned about their value."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from tvsnap import UsageError


def posterior(prior: Mapping[str, float], values: Mapping[str, float], temperature: float) -> dict[str, float]:
    """Returns probabilities that are proportional to prior(a) exp(Q(a) / T).

    It is computed with logarithms, of which the largest is subtracted first, so that no value overflows. If each
    logarithm of another prior differs by at most eps, the posteriors' KL divergence is at most 2 eps: the logarithms of
    the normalising sums differ by at most eps, too (arXiv 2505.07274).

    Args:
        prior: weights of actions, at least 0, not all 0. An action of weight 0 has probability 0.
        values: Q(a), the expected return; 0 for an action that is not there.
        temperature: T, above 0, in units of return. A high one trusts the prior, a low one the values.

    Raises:
        UsageError: the temperature is not above 0, a weight is negative or all are 0, or something is not finite.
    """
    if not (math.isfinite(temperature) and temperature > 0):
        raise UsageError(f"the temperature must be a finite number above 0, not {temperature!r}")
    logits = {}
    for action, weight in prior.items():
        value = values.get(action, 0.0)
        if not (math.isfinite(weight) and weight >= 0 and math.isfinite(value)):
            raise UsageError(
                f"the action {action!r:.60} has the prior {weight!r} and the value {value!r}: "
                "a prior must be finite and at least 0, a value finite"
            )
        if weight > 0:
            logits[action] = math.log(weight), value
    if not logits:
        raise UsageError("the prior has no action with a weight above 0; smooth it over the admissible actions")
    # The largest value is subtracted before the division: a difference over a tiny temperature is -inf, never nan.
    best = max(value for _, value in logits.values())
    scores = {action: log + (value - best) / temperature for action, (log, value) in logits.items()}
    largest = max(scores.values())
    unnormalised = {action: math.exp(score - largest) for action, score in scores.items()}
    total = math.fsum(unnormalised.values())
    return {action: unnormalised.get(action, 0.0) / total for action in prior}


def sample(probabilities: Mapping[str, float], generator: random.Random) -> str:
    """Returns an action, drawn with its probability.

    Args:
        probabilities: the probability of each action, at least one of them above 0.
        generator: draws.
    """
    return generator.choices(list(probabilities), list(probabilities.values()))[0]


@dataclass(frozen=True, slots=True)
class Cooling:
    """A temperature that falls as hits rise.

    T(hits) = lowest + (highest - lowest) / (1 + hits / half). A state that has been seen often has values that were
    learned; the prior matters where they were not. The paper gives no formula; this one falls hyperbolically, and never
    below `lowest`.

    Attributes:
        highest: the temperature without a hit, in units of return.
        lowest: the one that it approaches.
        half: after so many hits, half of the difference is left.

    Raises:
        UsageError: the temperatures are not above 0 or not in this order, or `half` is not above 0.
    """

    highest: float = 1.0
    lowest: float = 0.05
    half: float = 50.0

    def __post_init__(self) -> None:
        if not (0 < self.lowest <= self.highest < math.inf and 0 < self.half < math.inf):
            raise UsageError(
                "a cooling needs 0 < lowest <= highest and half > 0, "
                f"not highest={self.highest!r}, lowest={self.lowest!r}, half={self.half!r}"
            )

    def __call__(self, hits: int) -> float:
        """Returns the temperature.

        Args:
            hits: the number of the cache's answers.
        """
        return self.lowest + (self.highest - self.lowest) / (1.0 + hits / self.half)
