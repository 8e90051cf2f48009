"""What to fork ahead of time: what is expected, and how the places are dealt out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvsnap.engine.supply.prefork_policy import HALF_LIFE_S, HALF_LIVES, HOLD, REMEMBERED, TOGETHER, Demand, Needs, plan

KEYS = "abcdef"
LIFETIME = HOLD + HALF_LIVES * HALF_LIFE_S
REFILL = 1.0  # seconds
DEMANDS = st.lists(
    st.builds(Demand, st.sampled_from(KEYS), st.floats(0, 40), st.floats(0.001, 2)),
    unique_by=lambda demand: demand.key,
)
READY = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 10))
BUDGETS = st.integers(0, 40)


@given(DEMANDS, BUDGETS, READY)
def test_a_plan_keeps_within_the_budget_and_the_demand(
    demands: list[Demand[str]], budget: int, ready: dict[str, int]
) -> None:
    chosen = plan(demands, budget, ready)
    expected = {demand.key: int(demand.expected) for demand in demands}
    assert all(0 < count <= expected[key] for key, count in chosen.items())
    assert sum(chosen.values()) == min(budget, sum(expected.values()))


@given(DEMANDS, BUDGETS, READY)
def test_a_larger_budget_takes_nothing_away(demands: list[Demand[str]], budget: int, ready: dict[str, int]) -> None:
    smaller, larger = plan(demands, budget, ready), plan(demands, budget + 1, ready)
    assert all(larger[key] >= count for key, count in smaller.items())


@given(DEMANDS, BUDGETS, st.sampled_from(KEYS), st.floats(1, 10))
def test_who_is_expected_more_gets_no_less(demands: list[Demand[str]], budget: int, key: str, more: float) -> None:
    raised = [Demand(d.key, d.expected + more * (d.key == key), d.cost_s) for d in demands]
    assert plan(raised, budget).get(key, 0) >= plan(demands, budget).get(key, 0)


@given(DEMANDS, BUDGETS)
def test_a_plan_that_was_carried_out_stays(demands: list[Demand[str]], budget: int) -> None:
    chosen = plan(demands, budget)
    assert plan(demands, budget, chosen) == chosen


def test_the_places_follow_what_they_save() -> None:
    assert plan([Demand("a", 8, 0.2), Demand("b", 8, 0.2)], 8) == {"a": 4, "b": 4}
    assert plan([Demand("slow", 8, 0.3), Demand("quick", 8, 0.1)], 8) == {"slow": 6, "quick": 2}
    assert plan([Demand("often", 6, 0.2), Demand("rare", 2, 0.2)], 4) == {"often": 3, "rare": 1}


def test_what_is_ready_is_not_replaced_for_a_little_more() -> None:
    demands = [Demand("there", 4, 0.2), Demand("new", 5, 0.2)]
    assert plan(demands, 4) == {"new": 2, "there": 2}
    assert plan(demands, 4, {"there": 4}) == {"there": 3, "new": 1}
    assert plan([Demand("there", 4, 0.2), Demand("new", 40, 0.2)], 4, {"there": 4}) == {"new": 4}


def test_one_arrival_is_no_pattern() -> None:
    needs: Needs[str] = Needs()
    needs.needed("a", 0.0)
    assert needs.expected(1.0, REFILL) == {"a": 0.0}
    needs.needed("a", 1.0)
    assert needs.expected(1.0, REFILL) == {"a": 2.0}


def test_what_comes_one_after_the_other_needs_fewer_at_once() -> None:
    needs: Needs[str] = Needs()
    for time in (0.0, 5.0, 10.0, 11.0, 16.0, 21.0):
        needs.needed("a", time)
    assert needs.expected(21.0, 0.1) == needs.expected(21.0, TOGETHER) == {"a": 2.0}
    assert needs.expected(21.0, 6.0) == {"a": 3.0}
    assert needs.expected(21.0, 100.0) == {"a": 6.0}


def test_what_was_foretold_is_expected_until_it_comes() -> None:
    needs: Needs[str] = Needs()
    for _ in range(3):
        needs.expect("a", 0.0)
    assert needs.expected(0.0, REFILL) == {"a": 3.0}
    needs.needed("a", 1.0)
    assert needs.expected(1.0, REFILL) == {"a": 2.0}  # one came, which is no pattern yet
    needs.needed("a", 1.0)
    needs.needed("a", 1.0)
    assert needs.expected(1.0, REFILL) == {"a": 3.0}


def test_a_burst_is_expected_again_for_a_while_and_then_no_more() -> None:
    needs: Needs[str] = Needs()
    for _ in range(8):
        needs.needed("a", 0.0)
    assert needs.expected(HOLD, REFILL) == {"a": 8.0}
    assert needs.expected(HOLD + HALF_LIFE_S, REFILL) == {"a": pytest.approx(4.0)}
    assert needs.expected(HOLD + 2.5 * HALF_LIFE_S, REFILL) == {"a": 0.0}
    assert needs.expected(LIFETIME + 1, REFILL) == {}


def test_what_is_forgotten_is_not_expected() -> None:
    needs: Needs[str] = Needs()
    needs.expect("a", 0.0)
    needs.forget("a")
    needs.forget("b")
    assert needs.expected(0.0, REFILL) == {}


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.booleans(), st.floats(0, 20)), max_size=60), st.floats(0, 400))
def test_expectation_only_falls_in_silence(events: list[tuple[str, bool, float]], silence: float) -> None:
    needs: Needs[str] = Needs()
    now = 0.0
    for key, foretold, pause in events:
        now += pause
        (needs.expect if foretold else needs.needed)(key, now)
    before, after = needs.expected(now, REFILL), needs.expected(now + silence, REFILL)
    assert all(after.get(key, 0.0) <= count + 1e-9 for key, count in before.items())
    assert after.keys() <= before.keys()
    assert all(0 <= count <= 2 * REMEMBERED for count in before.values())
    assert needs.expected(now + silence + LIFETIME + 1, REFILL) == {}
