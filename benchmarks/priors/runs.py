"""One run: an agent learns a task for some rollouts, with a cache of what the model proposes, or without one."""

from __future__ import annotations

import itertools
import math
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from unittest import mock

from benchmarks.priors.models import Model
from benchmarks.priors.tasks import Task, View
from tvsnap.plugins.priors import Bounds, Cooling, PriorCache, Tuner, Weights, posterior, sample, smooth

WEIGHTS = Weights(asked=0.5, divergence=0.5)
BOUNDS = Bounds(delta=(0.80, 0.9999), refresh=(0.005, 0.20), capacity=(50, 4000))
SMOOTHING = 0.05
RATE, DISCOUNT = 0.2, 0.97
COOLING = Cooling(highest=0.3, lowest=0.02, half=500.0)
"""The temperature falls with the steps, so that it is the same for all, also for who has no cache."""
WINDOW = 5
"""So many rollouts make a window of the tuner."""


@dataclass(frozen=True, slots=True)
class Variant:
    """How proposals are cached.

    Attributes:
        name: of the row.
        delta: above 1: exact states only.
        refresh: the rate.
        capacity: answers that are kept.
        evicts: what goes first; `worth` is what `PriorCache` does.
        asks: whether a model is asked at all; else all actions are equally probable to begin with.
        cached: whether there is a cache.
        adapts: whether a `Tuner` changes its parameters.
    """

    name: str
    delta: float = 0.98
    refresh: float = 0.02
    capacity: int = 100
    evicts: Literal["worth", "least recently used", "least frequently used"] = "worth"
    asks: bool = True
    cached: bool = True
    adapts: bool = False


FIXED = Variant("fixed")
GRID = [
    Variant("best of a grid", delta=delta, refresh=refresh, capacity=capacity)
    for delta, refresh, capacity in itertools.product((0.90, 0.98, 0.998), (0.005, 0.05), (100, 4000))
]


def drawn(seed: int) -> Variant:
    """Returns parameters at random, evenly on the scales on which the tuner moves."""
    generator = random.Random(seed)

    def within(low: float, high: float) -> float:
        return math.exp(generator.uniform(math.log(low), math.log(high)))

    distance = within(1.0 - BOUNDS.delta[1], 1.0 - BOUNDS.delta[0])
    return Variant("random", 1.0 - distance, within(*BOUNDS.refresh), round(within(*BOUNDS.capacity)))


def variants(seed: int, best: Variant) -> list[Variant]:
    """Returns what is compared."""
    return [
        Variant("no model", asks=False, cached=False),
        Variant("no cache", cached=False),
        replace(FIXED, name="exact states", delta=2.0),
        replace(FIXED, name="LRU", evicts="least recently used"),
        replace(FIXED, name="LFU", evicts="least frequently used"),
        FIXED,
        best,
        drawn(seed),
        replace(FIXED, name="adaptive", adapts=True),
    ]


@dataclass
class Outcome:
    """What a run was like.

    Attributes:
        variant: how proposals were cached, at the end.
        returns: of each rollout.
        queries: how often the model was asked.
        lookups: how often an action was needed.
        latencies_s: of each action: the lookup, and what the model is charged.
        near: answers of similar states; `false`: those among them whose likeliest action is none that the model has on
            top for the state itself.
        divergence: what refreshes of similar states have found, in nats; `chance`: those of exact states; None without
            any.
        tuner_s: seconds that the tuner took; `cache_s`: those of the cache, without the model; `run_s`: all of the run.
        surrogate: what the tuner maximises, of the whole run.
    """

    variant: Variant
    returns: list[float] = field(default_factory=list)
    queries: int = 0
    lookups: int = 0
    latencies_s: list[float] = field(default_factory=list)
    near: int = 0
    false: int = 0
    divergence: float | None = None
    chance: float | None = None
    tuner_s: float = 0.0
    cache_s: float = 0.0
    run_s: float = 0.0

    @property
    def surrogate(self) -> float:
        """Mean return less the weighted share of queries and divergence, as `Tuner` has it."""
        beyond_chance = max(0.0, (self.divergence or 0.0) - (self.chance or 0.0))
        harm = WEIGHTS.divergence * self.near / self.lookups * beyond_chance / math.log(2.0)
        return statistics.fmean(self.returns) - WEIGHTS.asked * self.queries / self.lookups - harm


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
    begun = time.perf_counter()
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
            tuner = Tuner(cache, BOUNDS, WEIGHTS, rollouts=WINDOW, seed=seed) if variant.adapts else None
            agent = _Agent(
                task, model if variant.asks else None, cache if variant.cached else None, outcome, random.Random(seed)
            )
            for number in range(rollouts):
                outcome.returns.append(agent.rollout(seed * rollouts + number))
                if tuner is not None:
                    before = time.perf_counter()
                    tuner.record(outcome.returns[-1])
                    outcome.tuner_s += time.perf_counter() - before
            if tuner is not None:
                tuner.settle()
                outcome.variant = replace(variant, delta=cache.delta, refresh=cache.refresh, capacity=cache.capacity)
            counts = cache.counts()
            refreshes, near = counts.get("refreshes", 0.0), counts.get("near_refreshes", 0.0)
            if near:
                outcome.divergence = counts["near_divergence"] / near
            if refreshes > near:
                outcome.chance = (counts["divergence"] - counts.get("near_divergence", 0.0)) / (refreshes - near)
    outcome.run_s = time.perf_counter() - begun
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
