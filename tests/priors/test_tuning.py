"""Parameters that are adapted online: they become better, stay within their bounds, and cost hardly anything."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tvsnap import UsageError
from tvsnap.plugins.priors import Bounds, PriorCache, Tuner, Weights
from tvsnap.plugins.priors.tuning import Window

ACTIONS = ("left", "right", "wait")
STEPS = 20


class Circle:
    """States are points of a circle; every 12 degrees another action is right, and the model knows it."""

    name = "circle/1"

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def __call__(self, text: str) -> list[float]:
        return [math.cos(math.radians(float(text))), math.sin(math.radians(float(text)))]

    @staticmethod
    def right(degrees: float) -> str:
        return ACTIONS[int(degrees // 12) % len(ACTIONS)]

    def rollout(self, cache: PriorCache) -> float:
        """Returns the share of steps in which the most probable action was right."""
        good = 0
        for _ in range(STEPS):
            degrees = round(self.random.uniform(0.0, 359.0), 3)

            def ask(degrees: float = degrees) -> Mapping[str, float]:
                return {self.right(degrees): 1.0}

            prior = cache.prior("turn", ACTIONS, ask, text=str(degrees)).probabilities
            good += max(prior, key=prior.__getitem__) == self.right(degrees)
        return good / STEPS


def surrogate(path: Path, delta: float, *, tuned: bool, windows: int = 40) -> tuple[float, PriorCache, Tuner]:
    """Returns the mean surrogate of the last windows, from a threshold to begin with."""
    circle = Circle(seed=5)
    cache = PriorCache(path, delta=delta, refresh=0.01, embedder=circle, seed=3)
    bounds = Bounds(delta=(0.5, 0.99999), refresh=(0.01, 0.2))
    if not tuned:
        bounds = Bounds(delta=(delta, delta), refresh=(0.01, 0.01))
    tuner = Tuner(cache, bounds, Weights(asked=0.5, divergence=0.5), rollouts=3, seed=2)
    for _ in range(windows * tuner.rollouts):
        tuner.record(circle.rollout(cache))
        assert bounds.delta[0] <= cache.delta <= bounds.delta[1]
        assert bounds.refresh[0] <= cache.refresh <= bounds.refresh[1]
    cache.close()
    last = tuner.windows[-10:]
    return sum(window.surrogate for window in last) / len(last), cache, tuner


def test_a_threshold_that_is_far_too_low_is_mended(tmp_path: Path) -> None:
    fixed, _, _ = surrogate(tmp_path / "fixed.db", 0.6, tuned=False)
    found, _, tuner = surrogate(tmp_path / "tuned.db", 0.6, tuned=True)
    assert found > fixed + 0.2
    tuner.settle()
    assert tuner.cache.delta > 0.6
    audited = [window.divergence for window in tuner.windows]
    assert sum(audited[:10]) > 0.0


def test_a_threshold_that_suits_is_not_spoiled(tmp_path: Path) -> None:
    fixed, _, _ = surrogate(tmp_path / "fixed.db", 0.9995, tuned=False)
    found, _, _ = surrogate(tmp_path / "tuned.db", 0.9995, tuned=True)
    assert found > fixed - 0.1


def test_the_capacity_grows_while_what_was_evicted_is_wanted_again(tmp_path: Path) -> None:
    def ask() -> Mapping[str, float]:
        return {"left": 1.0}

    with PriorCache(tmp_path / "priors.db", refresh=0.01, capacity=20, seed=1) as cache:
        tuner = Tuner(cache, Bounds(capacity=(10, 60)), rollouts=1)
        for _ in range(12):
            for number in range(50):
                cache.prior("turn", ACTIONS, ask, state=f"{number}")
            tuner.record(1.0)
        assert cache.capacity >= 50
        assert tuner.windows[-1].asked < tuner.windows[0].asked
        grown = cache.capacity
        for number in range(400):
            cache.prior("turn", ACTIONS, ask, state=f"never again {number}")
            if number % 40 == 39:
                tuner.record(1.0)
        assert 10 <= cache.capacity < grown


def test_divergence_counts_beyond_chance_and_for_the_share_of_lookups_that_are_similar(tmp_path: Path) -> None:
    circle = Circle(seed=1)
    weights = Weights(asked=0.0, divergence=1.0)
    answers = iter(range(10**6))

    def ask() -> Mapping[str, float]:  # by turns, so that no answer is like the one before
        return {ACTIONS[next(answers) % 2]: 1.0}

    def window(path: str, states: list[float], *, by_chance: bool) -> Window:
        with PriorCache(tmp_path / path, delta=0.9, refresh=0.5, embedder=circle, seed=1) as cache:
            tuner = Tuner(cache, Bounds(delta=(0.9, 0.9), refresh=(0.5, 0.5)), weights, rollouts=1)
            for degrees in states:
                cache.prior("turn", ACTIONS, ask if by_chance else partial(right, degrees), text=str(degrees))
            tuner.record(1.0)
            return tuner.windows[0]

    def right(degrees: float) -> Mapping[str, float]:
        return {circle.right(degrees): 1.0}

    mostly_similar = window("similar.db", [number / 10 for number in range(300)], by_chance=False)
    assert mostly_similar.near > 0.3
    assert mostly_similar.surrogate == pytest.approx(
        1.0 - mostly_similar.near * mostly_similar.divergence / math.log(2)
    )
    mostly_exact = window("exact.db", [0.0, 0.0, 0.0, 13.0] * 75, by_chance=False)
    assert mostly_exact.near < mostly_similar.near
    chance = window("chance.db", [0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0] * 40, by_chance=True)
    assert chance.divergence < 0.4 < math.log(2)


def test_nothing_changes_where_nothing_differs(tmp_path: Path) -> None:
    with PriorCache(tmp_path / "priors.db", delta=0.95, refresh=0.05) as cache:
        tuner = Tuner(cache, rollouts=1)
        for _ in range(20):
            tuner.record(0.5)
        tuner.settle()
        assert cache.delta == pytest.approx(0.95)
        assert cache.refresh == pytest.approx(0.05)


@pytest.mark.parametrize(
    "bounds",
    [{"delta": (0.9, 0.8)}, {"delta": (0.5, 1.0)}, {"refresh": (0.0, 0.1)}, {"capacity": (0, 5)}],
    ids=str,
)
def test_bounds_that_make_no_sense(bounds: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="bounds must be pairs"):
        Bounds(**bounds)


def test_what_makes_no_sense(tmp_path: Path) -> None:
    with PriorCache(tmp_path / "priors.db") as cache:
        with pytest.raises(UsageError, match="rollouts must be"):
            Tuner(cache, rollouts=0)
        with pytest.raises(UsageError, match="rollouts must be"):
            Tuner(cache, rollouts=2.5)  # type: ignore[arg-type]
        for value in (math.nan, math.inf, 1e308, "1"):
            with pytest.raises(UsageError, match="the return of a rollout"):
                Tuner(cache).record(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, "1"])
def test_weights_that_make_no_sense(value: float) -> None:
    with pytest.raises(UsageError, match="the weight second"):
        Weights(second=value)


def test_what_is_switched_off_stays_off(tmp_path: Path) -> None:
    """Above 1, no answer of a similar state is given; without refreshes, none is replaced."""
    with PriorCache(tmp_path / "priors.db", delta=1.5, refresh=0.0, embedder=Circle(0)) as cache:
        cache.prior("turn", ACTIONS, lambda: ["left"], text="10")
        tuner = Tuner(cache, rollouts=1)
        for number in range(9):
            tuner.record(float(number % 3))
            assert (cache.delta, cache.refresh) == (1.5, 0.0)
            assert cache.lookup("turn", ACTIONS, text="10.001") is None
        tuner.settle()
        assert (cache.delta, cache.refresh) == (1.5, 0.0)


def test_returns_that_are_far_apart(tmp_path: Path) -> None:
    with PriorCache(tmp_path / "priors.db", delta=0.9, refresh=0.05) as cache:
        tuner = Tuner(cache, rollouts=2)
        for number in range(16):
            tuner.record(1e100 * (-1) ** (number // 2))
        assert 0.8 <= cache.delta <= 0.999
