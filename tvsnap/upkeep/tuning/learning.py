"""Looks for a better tuning: on one half of the tasks, and judged on the other."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tvsnap.model.errors import UsageError
from tvsnap.model.tuning import DEFAULT_TUNING, TUNING_BOUNDS, Tuning
from tvsnap.upkeep.tuning.recorded import RecordedRollout
from tvsnap.upkeep.tuning.simulation import Outcome, Setting, Weights, simulate, without_cache

LEARNED = ("break_even", "unproven_share", "record_share", "trial_s", "unproven_s", "youth_s", "new_call_chance")
"""The parameters that make a difference in the simulation; the others stay as they are."""
MARGIN = 0.005
"""The share of the cost by which a tuning must be better than another one to be preferred."""
WIDEST, NARROWEST = 1.2, 0.2
"""Steps of the search at its beginning and its end, as standard deviations of a parameter's logarithm."""
FEWEST = 8
"""Rollouts of each half that are needed to tell tunings apart."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a search came to.

    Attributes:
        found: the best tuning of the rollouts that were learned from.
        tuning: what is to be used: `found` if it is better on the rollouts that were held out, too; else the one that
            the search began with.
        learned_from, held_out: how many rollouts there were of each kind.
        without: what the held-out rollouts come to without a cache.
        before: what they come to with the tuning that the search began with.
        after: what they come to with `found`.
        before_cost, after_cost: these by the weights, in seconds of waiting.
    """

    found: Tuning
    tuning: Tuning
    learned_from: int
    held_out: int
    without: Outcome
    before: Outcome
    after: Outcome
    before_cost: float
    after_cost: float

    @property
    def is_better(self) -> bool:
        """Whether what was found is better on the rollouts that were held out."""
        return self.after_cost < self.before_cost * (1.0 - MARGIN)


def learn(
    rollouts: Sequence[RecordedRollout],
    setting: Setting,
    *,
    weights: Weights | None = None,
    begin: Tuning = DEFAULT_TUNING,
    trials: int = 60,
    seed: int = 0,
    progress: Callable[[], object] = lambda: None,
) -> Judgement:
    """Looks for the tuning with which recorded rollouts cost least, and judges it by rollouts of other tasks.

    It is a random search around the best one so far, by steps that become shorter (an evolution strategy with one
    parent and one child). Tasks are divided in two by a digest of their names; where there is only one task, rollouts
    are divided by turns.

    Args:
        rollouts: in the order in which they began.
        setting: how they run.
        weights: what counts how much.
        begin: where the search begins.
        trials: how many tunings are tried.
        seed: of the search.
        progress: called after each trial.

    Raises:
        UsageError: there are too few rollouts.
    """
    weights = weights or Weights()
    learned_from, held_out = divide(rollouts)
    if min(len(learned_from), len(held_out)) < FEWEST:
        raise UsageError(
            f"{len(rollouts)} recorded rollouts were read, too few to learn from: {FEWEST} are needed to learn from, "
            f"and {FEWEST} of other tasks to judge by; run more rollouts on this data directory first"
        )
    chance = random.Random(seed)
    best, best_cost = begin, weights.cost(simulate(learned_from, begin, setting))
    for trial in range(trials):
        step = WIDEST * (NARROWEST / WIDEST) ** (trial / max(1, trials - 1))
        tried = _changed(best, step, chance)
        cost = weights.cost(simulate(learned_from, tried, setting))
        if cost < best_cost * (1.0 - MARGIN):
            best, best_cost = tried, cost
        progress()
    for name in LEARNED:  # what makes no difference stays as it was
        plain = replace(best, **{name: getattr(begin, name)})
        if plain != best and (cost := weights.cost(simulate(learned_from, plain, setting))) <= best_cost:
            best, best_cost = plain, cost
    before, after = simulate(held_out, begin, setting), simulate(held_out, best, setting)
    costs = weights.cost(before), weights.cost(after)
    better = costs[1] < costs[0] * (1.0 - MARGIN)
    return Judgement(
        best,
        best if better else begin,
        len(learned_from),
        len(held_out),
        without_cache(held_out, setting),
        before,
        after,
        *costs,
    )


def divide(rollouts: Sequence[RecordedRollout]) -> tuple[list[RecordedRollout], list[RecordedRollout]]:
    """Returns the rollouts to learn from, and those to judge by: other tasks, or else other rollouts."""
    halves: tuple[list[RecordedRollout], list[RecordedRollout]] = ([], [])
    tasks = sorted({(one.root, one.task) for one in rollouts}, key=_digest)
    side = {task: number % 2 for number, task in enumerate(tasks)}
    for number, one in enumerate(rollouts):
        halves[side[one.root, one.task] if len(tasks) > 1 else number % 2].append(one)
    return halves


def _digest(task: tuple[str, str]) -> bytes:
    return hashlib.sha256("\0".join(task).encode("utf-8", "surrogateescape")).digest()


def _changed(tuning: Tuning, step: float, chance: random.Random) -> Tuning:
    """Returns a tuning of which one or two parameters are changed by a factor."""
    values = tuning.as_dict()
    for name in chance.sample(LEARNED, chance.choice((1, 2))):
        low, high = TUNING_BOUNDS[name]
        values[name] = min(high, max(low, values[name] * math.exp(chance.gauss(0.0, step))))
    return Tuning(**values)
