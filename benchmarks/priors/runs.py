"""One run: an agent learns a task for some rollouts, with a cache of what the model proposes, or without one."""

from __future__ import annotations

import itertools
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from unittest import mock

from benchmarks.priors.models import Model
from benchmarks.priors.tasks import Task, View
from tvsnap.plugins.priors import Cooling, PriorCache, posterior, sample, smooth

SMOOTHING = 0.05
RATE, DISCOUNT = 0.2, 0.97
COOLING = Cooling(highest=0.3, lowest=0.02, half=500.0)
"""The temperature falls with the steps, so that it is the same for all, also for who has no cache."""
THRESHOLDS = (2.0, 0.99, 0.98, 0.96, 0.93, 0.90)
"""Fixed thresholds that are compared; above 1, exact states alone answer."""
TOLERANCE = 0.05
"""The tolerated error, the same for all tasks."""
STARTS = (0.60, 0.98, 2.0)
"""Thresholds with which a cache with a tolerance has been used before: for so many rollouts, which count as all do."""
STARTING = 5


@dataclass(frozen=True, slots=True)
class Variant:
    """How proposals are cached.

    Attributes:
        name: of the row.
        delta: above 1: exact states only.
        refresh: the rate.
        capacity: answers that are kept.
        tolerance: the tolerated error, from the rollout `STARTING` on; None: the threshold is fixed.
        evicts: what goes first; `worth` is what `PriorCache` does.
        asks: whether a model is asked at all; else all actions are equally probable to begin with.
        cached: whether there is a cache.
    """

    name: str
    delta: float = 0.98
    refresh: float = 0.02
    capacity: int = 4000
    tolerance: float | None = None
    evicts: Literal["worth", "least recently used", "least frequently used"] = "worth"
    asks: bool = True
    cached: bool = True


FEW = 100
"""A capacity that is too small for most tasks, at which rules of eviction are compared."""


def named(threshold: float) -> str:
    """Returns what a threshold is called."""
    return "exact states" if threshold > 1.0 else f"{threshold:.2f}"


WITHOUT = (Variant("no model", asks=False, cached=False), Variant("no cache", cached=False))
COMPARISONS = {
    "thresholds": (
        *WITHOUT,
        *(Variant(f"fixed, {named(delta)}", delta=delta) for delta in THRESHOLDS),
        *(Variant(f"tolerance, after {named(start)}", delta=start, tolerance=TOLERANCE) for start in STARTS),
    ),
    "evictions": (
        Variant("worth", capacity=FEW),
        Variant("LRU", capacity=FEW, evicts="least recently used"),
        Variant("LFU", capacity=FEW, evicts="least frequently used"),
    ),
}
"""What is compared, by the question that it answers."""


@dataclass
class Outcome:
    """What a run was like.

    Attributes:
        variant: how proposals were cached.
        returns: of each rollout.
        queries: how often the model was asked.
        lookups: how often an action was needed.
        latencies_s: of each action: the lookup, and what the model is charged.
        near: answers of similar states; `false`: those among them whose likeliest action is none that the model has on
            top for the state itself.
        bound: what the mean error that similar states brought is at most, over all lookups, as the cache measured it.
        cache_s: seconds that the cache took, without the model.
    """

    variant: Variant
    returns: list[float] = field(default_factory=list)
    queries: int = 0
    lookups: int = 0
    latencies_s: list[float] = field(default_factory=list)
    near: int = 0
    false: int = 0
    bound: float = 0.0
    cache_s: float = 0.0


def run(task: Task, model: Model, variant: Variant, rollouts: int, seed: int) -> Outcome:
    """Runs an agent that learns a task, from nothing.

    Args:
        task: what it does.
        model: proposes actions.
        variant: how its proposals are cached.
        rollouts: how many.
        seed: of the rollouts and of what is drawn.
    """
    outcome = Outcome(variant)
    with tempfile.TemporaryDirectory(prefix="tvsnap-priors-") as folder, _evicting(variant):
        cache = PriorCache(
            Path(folder) / "priors.db",
            delta=variant.delta,
            refresh=variant.refresh,
            capacity=variant.capacity,
            smoothing=SMOOTHING,
            seed=seed,
        )
        with cache:
            cache.prior("none", ["none"], lambda: {"none": 1.0}, text="loads the embedder")
            agent = _Agent(
                task, model if variant.asks else None, cache if variant.cached else None, outcome, random.Random(seed)
            )
            for number in range(rollouts):
                if number == STARTING:
                    cache.tolerance = variant.tolerance
                outcome.returns.append(agent.rollout(seed * rollouts + number))
            outcome.bound = cache.stats().error_bound
    return outcome


class _Agent:
    """Draws actions from the posterior, and learns Q by the text of the state, as `QLearner` does; here, the admissible
    actions differ from state to state."""

    def __init__(
        self, task: Task, model: Model | None, cache: PriorCache | None, outcome: Outcome, generator: random.Random
    ) -> None:
        self._task, self._model, self._cache, self._outcome, self._random = task, model, cache, outcome, generator
        self._values: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)

    def rollout(self, number: int) -> float:
        """Runs one rollout, and returns its return."""
        total, view = 0.0, self._task.reset(number)
        while True:
            values = self._values[view.goal, view.text]
            temperature = COOLING(self._outcome.lookups)
            action = sample(posterior(self._prior(view), values, temperature), self._random)
            following, reward = self._task.step(action)
            ahead = 0.0
            if following is not None:
                known = self._values[following.goal, following.text]
                ahead = max((known.get(each, 0.0) for each in following.actions), default=0.0)
            before = values.get(action, 0.0)
            values[action] = before + RATE * (reward + DISCOUNT * ahead - before)
            total += reward
            if following is None:
                return total
            view = following

    def _prior(self, view: View) -> dict[str, float]:
        outcome, model = self._outcome, self._model
        outcome.lookups += 1
        if model is None:
            outcome.latencies_s.append(0.0)
            return dict.fromkeys(view.actions, 1.0 / len(view.actions))
        if self._cache is None:
            answer = smooth(model(view), view.actions, SMOOTHING)
            outcome.queries += 1
            outcome.latencies_s.append(model.delay_s)
            return dict(zip(view.actions, answer.probabilities, strict=True))
        begun = time.perf_counter()
        prior = self._cache.prior(view.goal, view.actions, lambda: model(view), text=view.text)
        took = time.perf_counter() - begun
        if prior.is_hit:
            charged = 0.0
        else:
            outcome.queries += 1
            took -= model.spent_s
            charged = model.delay_s
        outcome.cache_s += took
        outcome.latencies_s.append(took + charged)
        if prior.source == "near":
            outcome.near += 1
            outcome.false += max(prior.probabilities, key=prior.probabilities.__getitem__) not in model.likely(view)
        return prior.probabilities


@contextmanager
def _evicting(variant: Variant) -> Iterator[None]:
    """A block in which entries have another worth: by their last use, or by the number of uses."""
    clock = itertools.count()
    others: dict[str, Callable[..., float]] = {
        "least recently used": lambda *_: float(next(clock)),
        "least frequently used": lambda uses, *_: float(uses + 1),
    }
    if variant.evicts == "worth":
        yield
        return
    with mock.patch("tvsnap.plugins.priors.store.worth", others[variant.evicts]):
        yield
