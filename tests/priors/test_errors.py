"""The tolerated error: bounds hold, and what similar states answer is no more wrong than tolerated, wherever it begins.

True errors are known: states are points of a circle on which every 12 degrees another action is right, and the model
always says which. An answer of a similar state is then either the same or wholly wrong.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from tvsnap import UsageError
from tvsnap.plugins.priors import PriorCache
from tvsnap.plugins.priors.errors import CONFIDENCE, DISTANCES, Errors, _Mean

ACTIONS = ("left", "right", "wait")
SECTOR = 12.0
STEPS = 1500


def circle(text: str) -> list[float]:
    """Returns the point of a circle, given its degrees."""
    return [math.cos(math.radians(float(text))), math.sin(math.radians(float(text)))]


def right(degrees: float) -> str:
    return ACTIONS[int(degrees // SECTOR) % len(ACTIONS)]


def walk(cache: PriorCache, steps: int, seed: int) -> tuple[float, int]:
    """Looks up points at random; returns the share of wrong answers, and how often the model was asked."""
    drawn, wrong, asked = random.Random(seed), 0, 0
    for _ in range(steps):
        degrees = drawn.uniform(0.0, 360.0)

        def ask(degrees: float = degrees) -> Mapping[str, float]:
            return {right(degrees): 1.0}

        prior = cache.prior("turn", ACTIONS, ask, text=f"{degrees:.3f}")
        wrong += max(prior.probabilities, key=prior.probabilities.__getitem__) != right(degrees)
        asked += not prior.is_hit
    return wrong / steps, asked


@pytest.mark.parametrize("start", [0.6, 0.98, 2.0])
@pytest.mark.parametrize("tolerance", [0.02, 0.1])
def test_the_error_is_as_tolerated_wherever_the_threshold_began(tmp_path: Path, tolerance: float, start: float) -> None:
    with PriorCache(tmp_path / "priors.db", delta=start, embedder=circle, smoothing=1e-6, seed=1) as cache:
        walk(cache, 100, seed=2)
        cache.tolerance = tolerance
        before = cache.counts()
        wrong, asked = walk(cache, STEPS, seed=3)
        counts = {name: value - before.get(name, 0.0) for name, value in cache.counts().items()}
    assert wrong <= counts["near_bound"] / STEPS <= 1.25 * tolerance
    # Points that are drawn at random hardly ever come twice: without similar states, each is asked about.
    assert asked < (0.85 if tolerance == 0.02 else 0.45) * STEPS


def test_a_larger_tolerance_asks_less_and_errs_more(tmp_path: Path) -> None:
    found = []
    for tolerance in (0.01, 0.05, 0.2):
        file = tmp_path / f"{tolerance}.db"
        with PriorCache(file, tolerance=tolerance, embedder=circle, smoothing=1e-6, seed=1) as cache:
            found.append(walk(cache, 500, seed=3))
            assert cache.stats().error_bound == pytest.approx(cache.counts()["near_bound"] / 500)
    wrongs, asked = zip(*found, strict=True)
    assert list(wrongs) == sorted(wrongs)
    assert list(asked) == sorted(asked, reverse=True)


def test_bounds_are_above_the_true_error_of_each_class_of_distances() -> None:
    """Two points that are a degrees apart are in different sectors with the probability a / 12."""
    drawn, errors = random.Random(4), Errors()
    angles = [math.degrees(math.acos(1.0 - distance)) for distance in DISTANCES if distance < 1.0]
    for low, high in zip([0.0, *angles], angles, strict=False):
        for _ in range(400):
            angle, place = drawn.uniform(low, high), drawn.uniform(0.0, 360.0)
            wrong = right(place) != right((place + angle) % 360.0)
            errors.compared(math.cos(math.radians(angle)), math.log(2) if wrong else 0.0)
        if high <= SECTOR:
            true = (low + high) / 2.0 / SECTOR
            assert true <= errors.bound(math.cos(math.radians(high))) <= true + 0.1


@pytest.mark.parametrize("count", [1, 3, 10, 40, 200])
@pytest.mark.parametrize("true", [0.02, 0.2, 0.5, 0.9])
def test_a_bound_fails_no_more_often_than_it_says(count: int, true: float) -> None:
    """Exactly, over all outcomes of a coin; of numbers from 0 to 1 with the same mean, none strays further."""
    below = above = 0.0
    for heads in range(count + 1):
        chance = math.comb(count, heads) * true**heads * (1.0 - true) ** (count - heads)
        mean = _Mean(count, float(heads))
        below += chance * (mean.upper() < true)
        above += chance * (mean.lower() > true)
        assert mean.lower() <= heads / count <= mean.upper()
    assert below <= 1.0 - CONFIDENCE
    assert above <= 1.0 - CONFIDENCE


def test_the_models_own_chance_is_no_error_of_similar_states() -> None:
    errors, same = Errors(), Errors()
    for number in range(200):
        errors.compared(0.999, 0.3 * math.log(2))
        same.compared(0.999, 0.3 * math.log(2))
        if number % 2:
            same.compared(None, 0.3 * math.log(2))
    assert errors.bound(0.999) > 0.3
    assert same.bound(0.999) < 0.2


def test_answers_of_the_same_state_are_compared_only_beside_those_of_similar_ones() -> None:
    errors = Errors()
    assert errors.chance_wanted() == 0.0
    for _ in range(8):
        errors.compared(0.9, 0.0)
    assert errors.chance_wanted() == 1.0
    for _ in range(9):
        errors.compared(None, 0.0)
    assert errors.chance_wanted() == pytest.approx(0.2)


def test_the_nearest_distances_come_first() -> None:
    errors = Errors()
    for _ in range(100):
        errors.looked_up(None)
    assert errors.share(0.99, 0.05) == 1.0, "nothing is known, and one wrong answer of a hundred is tolerated"
    for _ in range(20):
        errors.looked_up(0.99)
    at = errors.share(0.99, 0.05)
    assert 0.0 < at < 1.0
    assert errors.share(0.9, 0.05) == 0.0
    assert errors.share(0.9999, 0.05) == 1.0
    assert errors.share(-1.0, 0.999) == 1.0


def test_a_lookup_gives_only_what_would_be_given_for_certain(tmp_path: Path) -> None:
    with PriorCache(tmp_path / "priors.db", tolerance=0.01, refresh=0.0, embedder=circle, seed=1) as cache:
        for number in range(5):
            cache.prior("turn", ACTIONS, lambda: ["left"], state=f"another {number}")
        cache.prior("turn", ACTIONS, lambda: ["left"], text="1.0")
        assert cache.lookup("turn", ACTIONS, text="1.0") is not None
        assert cache.lookup("turn", ACTIONS, text="1.001") is None, "six lookups tolerate no wrong answer"
        stats = cache.stats()
        assert (stats.near_hits, stats.near_bound, stats.error_bound) == (0, None, 0.0)
        cache.tolerance = 0.9
        found = cache.lookup("turn", ACTIONS, text="1.001")
        assert found is not None
        assert found.source == "near"


@pytest.mark.parametrize("value", [0.0, 1.0, math.nan, "1", True])
def test_a_tolerance_that_makes_no_sense(tmp_path: Path, value: object) -> None:
    with pytest.raises(UsageError, match="tolerance must be above 0 and below 1"):
        PriorCache(tmp_path / "priors.db", tolerance=value)  # type: ignore[arg-type]
