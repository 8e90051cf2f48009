"""Distributions and the posterior: what they promise, for whatever numbers."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvsnap import UsageError
from tvsnap.plugins.priors import Cooling, js, kl, posterior, sample, smooth

NAMES = "abcdefgh"


@st.composite
def perturbed(draw: st.DrawFn) -> tuple[dict[str, float], dict[str, float], dict[str, float], float, float]:
    """Returns two priors whose logarithms differ by eps at most, values, a temperature, and eps."""
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    eps = draw(st.floats(0.0, 5.0))
    logs = {name: draw(st.floats(-20.0, 0.0)) for name in names}
    first = {name: math.exp(log) for name, log in logs.items()}
    second = {name: math.exp(log + draw(st.floats(-1.0, 1.0)) * eps) for name, log in logs.items()}
    values = {name: draw(st.floats(-1e6, 1e6)) for name in names}
    return first, second, values, draw(st.floats(1e-6, 1e6)), eps


@given(perturbed())
def test_an_error_of_eps_in_the_log_prior_is_at_most_two_eps_of_divergence(
    case: tuple[dict[str, float], dict[str, float], dict[str, float], float, float],
) -> None:
    first, second, values, temperature, eps = case
    p, q = (list(posterior(prior, values, temperature).values()) for prior in (first, second))
    if min(q) > 0.0:  # what underflows to 0 in one only is not a matter of the bound
        assert kl(p, q) <= 2 * eps + 1e-9
        assert kl(q, p) <= 2 * eps + 1e-9


@given(perturbed())
def test_a_posterior_adds_up_to_one_and_adds_nothing_to_values_that_are_the_same(
    case: tuple[dict[str, float], dict[str, float], dict[str, float], float, float],
) -> None:
    prior, _, values, temperature, _ = case
    found = posterior(prior, values, temperature)
    assert math.fsum(found.values()) == pytest.approx(1.0)
    total = math.fsum(prior.values())
    same = posterior(prior, dict.fromkeys(prior, values[next(iter(values))]), temperature)
    assert same == pytest.approx({name: weight / total for name, weight in prior.items()}, abs=1e-12)


def test_it_is_the_formula() -> None:
    found = posterior({"a": 0.5, "b": 0.25, "c": 0.25}, {"a": 1.0, "b": 2.0}, 0.5)
    weights = {"a": 0.5 * math.exp(2.0), "b": 0.25 * math.exp(4.0), "c": 0.25}
    total = sum(weights.values())
    assert found == pytest.approx({name: weight / total for name, weight in weights.items()})


def test_extreme_temperatures_and_values() -> None:
    prior, values = {"a": 0.9, "b": 0.1, "c": 0.0}, {"a": 0.0, "b": 1.0, "c": 1e308}
    assert posterior(prior, values, 1e-300) == {"a": 0.0, "b": 1.0, "c": 0.0}
    assert posterior(prior, values, 1e300) == pytest.approx({"a": 0.9, "b": 0.1, "c": 0.0})
    assert posterior({"a": 1e-300, "b": 1e-300}, {}, 1.0) == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("prior", "values", "temperature", "reason"),
    [
        ({"a": 1.0}, {}, 0.0, "temperature"),
        ({"a": 1.0}, {}, math.inf, "temperature"),
        ({"a": 0.0}, {}, 1.0, "no action with a weight"),
        ({}, {}, 1.0, "no action with a weight"),
        ({"a": -1.0}, {}, 1.0, "action 'a'"),
        ({"a": 1.0}, {"a": math.nan}, 1.0, "action 'a'"),
    ],
)
def test_what_makes_no_sense(
    prior: dict[str, float], values: dict[str, float], temperature: float, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        posterior(prior, values, temperature)


def test_cooling_falls_with_hits_and_keeps_its_bounds() -> None:
    cooling = Cooling(highest=2.0, lowest=0.5, half=10.0)
    temperatures = [cooling(hits) for hits in (0, 1, 10, 100, 10**9)]
    assert temperatures == sorted(temperatures, reverse=True)
    assert temperatures[0] == 2.0
    assert temperatures[2] == pytest.approx(1.25)
    assert temperatures[-1] == pytest.approx(0.5)
    with pytest.raises(UsageError, match="lowest <= highest"):
        Cooling(highest=0.1, lowest=0.5)


@given(
    st.dictionaries(st.sampled_from(NAMES + "xyz"), st.one_of(st.just(0.0), st.floats(1e-300, 1e308)), max_size=8),
    st.floats(1e-9, 1.0),
)
def test_smoothed_proposals_are_a_distribution_in_which_all_is_possible(
    proposals: dict[str, float], share: float
) -> None:
    found = smooth(proposals, NAMES, share)
    assert math.fsum(found.probabilities) == pytest.approx(1.0)
    assert min(found.probabilities) >= share / len(NAMES) * (1 - 1e-9)
    assert 0.0 <= found.refused <= 1.0


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=6).filter(any), st.randoms(use_true_random=False))
def test_divergences(weights: list[float], generator: random.Random) -> None:
    p = [weight / math.fsum(weights) for weight in weights]
    q = list(p)
    generator.shuffle(q)
    assert kl(p, p) == 0.0
    assert 0.0 <= js(p, q) <= math.log(2)
    assert js(p, q) == pytest.approx(js(q, p))
    assert kl(p, q) >= 0.0


def test_divergences_of_what_has_nothing_in_common() -> None:
    assert kl([1.0, 0.0], [0.0, 1.0]) == math.inf
    assert js([1.0, 0.0], [0.0, 1.0]) == pytest.approx(math.log(2))
    with pytest.raises(UsageError, match="2 and 1 actions"):
        kl([0.5, 0.5], [1.0])


def test_samples_have_their_probabilities() -> None:
    generator = random.Random(3)
    drawn = [sample({"a": 0.8, "b": 0.2, "c": 0.0}, generator) for _ in range(2000)]
    assert drawn.count("a") == pytest.approx(1600, abs=80)
    assert "c" not in drawn
