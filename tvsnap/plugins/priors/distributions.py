"""Distributions over a few named actions: smoothing, and how far apart two are."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tvsnap import UsageError

LARGEST_JS = math.log(2)
"""The Jensen-Shannon divergence of two distributions that have no action in common, in nats."""

Proposals = Mapping[str, float] | Iterable[str]
"""A model's proposals: weights of actions, or actions, each as often as it was proposed."""


class Smoothed(NamedTuple):
    """Proposals as probabilities.

    Attributes:
        probabilities: one for each admissible action, in their order; each is above 0, and they add up to 1.
        refused: the share of the proposals' weight that was of actions which are not admissible, 0 to 1.
    """

    probabilities: tuple[float, ...]
    refused: float


LARGEST = sys.float_info.max
"""The largest weight of a proposal."""


def smooth(proposals: Proposals, actions: Sequence[str], share: float) -> Smoothed:
    """Returns proposals as probabilities of the admissible actions.

    A proposal that is not admissible is left out. If none is admissible, all actions are equally probable.

    Args:
        proposals: weights of actions of at least 0, which need not add up to 1; or actions, once for each proposal.
        actions: the admissible ones, at least one.
        share: the probability that is distributed evenly over all actions, above 0 and at most 1, so that each action
            has some.

    Raises:
        UsageError: a weight is no finite number of at least 0, or something else makes no sense.
    """
    if proposals is None or isinstance(proposals, (str, bytes)):
        raise UsageError(f"proposals must be a mapping or a list of actions, not {proposals!r:.60}")
    if not actions or not 0.0 < share <= 1.0:
        raise UsageError(f"at least one action is needed, and a share above 0 and at most 1, not {share!r}")
    try:
        weights = dict(proposals) if isinstance(proposals, Mapping) else dict(Counter(proposals))
    except TypeError:
        raise UsageError(
            f"proposals must be a mapping of actions to weights, or a list of actions, not {proposals!r:.60}"
        ) from None
    for action, weight in weights.items():
        if not isinstance(action, str):
            raise UsageError(f"actions must be texts, not {action!r:.60}")
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight <= LARGEST:
            raise UsageError(
                f"the weight of the action {action!r:.60} must be a number of at least 0, not {weight!r:.40}"
            )
    largest = max(weights.values(), default=0.0) or 1.0  # weights near the largest float would add up to infinity
    scaled = [float(weights.get(action, 0.0)) / largest for action in actions]
    admissible, of_all = math.fsum(scaled), math.fsum(weight / largest for weight in weights.values())
    even = 1.0 / len(actions)
    if admissible == 0.0:
        return Smoothed((even,) * len(actions), 1.0 if of_all else 0.0)
    mixed = [share * even + (1.0 - share) * weight / admissible for weight in scaled]
    total = math.fsum(mixed)
    return Smoothed(tuple(each / total for each in mixed), max(0.0, 1.0 - admissible / of_all))


def kl(p: Sequence[float], q: Sequence[float]) -> float:
    """Returns the Kullback-Leibler divergence KL(p || q) in nats; infinity if q excludes what p does not.

    Args:
        p: probabilities that add up to 1.
        q: probabilities of the same actions, in the same order.

    Raises:
        UsageError: they are of different lengths.
    """
    _check_same_actions(p, q)
    if any(a > 0.0 and b <= 0.0 for a, b in zip(p, q, strict=True)):
        return math.inf
    terms = (a * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True) if a > 0.0)
    return max(0.0, math.fsum(terms))


def js(p: Sequence[float], q: Sequence[float]) -> float:
    """Returns the Jensen-Shannon divergence of two distributions in nats: 0 to log 2.

    Args:
        p: probabilities that add up to 1.
        q: probabilities of the same actions, in the same order.

    Raises:
        UsageError: they are of different lengths.
    """
    _check_same_actions(p, q)
    middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    return min(LARGEST_JS, (kl(p, middle) + kl(q, middle)) / 2)


def _check_same_actions(p: Sequence[float], q: Sequence[float]) -> None:
    """Raises UsageError if two distributions are of different lengths."""
    if len(p) != len(q):
        raise UsageError(f"the distributions are over {len(p)} and {len(q)} actions; compare those over the same ones")
