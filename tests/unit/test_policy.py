"""The policies, against an oracle that adds the costs up; and what costs are taken to be."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tvsnap.engine.keeping.policy import Costs, Default, Eager, Never, Rebuild, policy
from tvsnap.engine.keeping.policy.costs import BURST, DEFAULTS, ENOUGH, THINKING_SHARE, WINDOW
from tvsnap.engine.keeping.policy.snapshotting import (
    CALL_OVERHEAD,
    FORMER_NAMES,
    FREE,
    LIGHT,
    LONG,
    UNPROVEN_SHARE,
)
from tvsnap.model.errors import UsageError

SHORT = Rebuild(from_root=True, calls=1, replay_s=0.0)


def busy_costs() -> Costs:
    """Costs on a machine whose processors are short."""
    return Costs("local", short=lambda: True)


def test_policies_by_name() -> None:
    assert isinstance(policy("default"), Default)
    assert isinstance(policy("eager"), Eager)
    assert isinstance(policy("never"), Never)
    with pytest.raises(UsageError, match='policy "often" not found; have: default, eager, never'):
        policy("often")


@pytest.mark.parametrize("name", FORMER_NAMES)
def test_former_names_are_understood_with_a_word_about_it(name: str) -> None:
    with pytest.warns(UserWarning, match=f'"{name}" is now called "default"'):
        assert isinstance(policy(name), Default)


def test_eager_and_never() -> None:
    assert Eager().should_checkpoint(SHORT, Costs("local"))
    assert not Never().should_checkpoint(Rebuild(False, 9, 1e6, 1e6, proven=False), Costs("local"))


@pytest.mark.parametrize("from_root", [True, False])
def test_break_even(from_root: bool) -> None:
    costs = Costs("local")
    begin = DEFAULTS["start"] if from_root else DEFAULTS["fork"]
    price = DEFAULTS["checkpoint"] + DEFAULTS["fork"]
    for calls in (1, 10):
        edge = price - begin - calls * CALL_OVERHEAD
        assert not Default().should_checkpoint(Rebuild(from_root, calls, edge - 1e-6), costs)
        assert Default().should_checkpoint(Rebuild(from_root, calls, edge + 1e-6), costs)


def test_what_was_spent_counts() -> None:
    assert not Default().should_checkpoint(Rebuild(True, 1, 0.001, spent_s=0.03), Costs("local"))
    assert Default().should_checkpoint(Rebuild(True, 1, 0.001, spent_s=0.05), Costs("local"))


def test_what_is_not_proven_is_kept_while_processors_are_idle() -> None:
    """Without a snapshot nobody can go on from it; and a checkpoint that nobody waits for costs nobody anything."""
    short, costs = Rebuild(False, 1, 0.0), Costs("local")
    assert not Default().should_checkpoint(short, costs)
    unproven = replace(short, proven=False)
    assert Default().should_checkpoint(unproven, costs)
    assert not Never().should_checkpoint(unproven, costs)
    dear = replace(unproven, checkpoint_s=2 * FREE)
    assert not Default().should_checkpoint(dear, costs)
    for _ in range(100):
        costs.paused(1.0)  # agents think for longer than that
    assert Default().should_checkpoint(dear, costs)
    assert not Default().should_checkpoint(replace(unproven, checkpoint_s=1.5), costs)


def test_what_is_not_proven_is_kept_while_processors_are_short_if_thinking_has_paid_for_it() -> None:
    """To keep more than that would make the calls of others slower."""
    unproven, costs = Rebuild(False, 1, 0.0, proven=False), busy_costs()
    assert Default().should_checkpoint(unproven, costs)
    costs.spent(BURST)
    assert not Default().should_checkpoint(unproven, costs)
    assert Eager().should_checkpoint(unproven, costs)
    costs.paused(costs.checkpoint_s / THINKING_SHARE + 0.001)
    assert Default().should_checkpoint(unproven, costs)


def test_what_is_not_proven_is_kept_where_the_calls_before_have_paid_for_it() -> None:
    costs = busy_costs()
    costs.spent(10 * BURST)
    least = costs.checkpoint_s / UNPROVEN_SHARE
    assert not Default().should_checkpoint(Rebuild(False, 3, least - 0.001, proven=False), costs)
    assert Default().should_checkpoint(Rebuild(False, 3, least + 0.001, proven=False), costs)
    assert not Default().should_checkpoint(Rebuild(False, 3, least + 0.001, proven=False, checkpoint_s=1.0), costs)


@pytest.mark.parametrize("seed", range(5))
def test_checkpoints_take_a_share_of_calls_and_of_thinking_while_processors_are_short(seed: int) -> None:
    chance = random.Random(seed)
    costs, worked, thought, spent, since = busy_costs(), 0.0, 0.0, 0.0, 0.0
    for _ in range(5000):
        duration = chance.expovariate(1 / chance.choice((0.001, 0.01, 0.1, 1.0)))
        pause = chance.choice((0.0, 0.01, 1.0))
        worked, since, thought = worked + duration, since + duration, thought + pause
        costs.paused(pause)
        if Default().should_checkpoint(Rebuild(False, 1, since, proven=False), costs):
            costs.spent(costs.checkpoint_s)
            spent, since = spent + costs.checkpoint_s, 0.0
    paid = UNPROVEN_SHARE * worked + THINKING_SHARE * thought
    assert 0.05 * UNPROVEN_SHARE * worked < spent <= paid + BURST + costs.checkpoint_s


def test_what_cannot_be_proven_is_snapshotted_at_once_if_that_is_cheap() -> None:
    """Whoever executes the calls again comes to a state that nobody else has, and shares nothing from there on."""
    costs = busy_costs()
    costs.spent(10 * BURST)
    unprovable = Rebuild(False, 1, 0.0, proven=False, provable=False)
    assert Default().should_checkpoint(unprovable, costs)
    assert not Default().should_checkpoint(replace(unprovable, provable=True), costs)
    assert not Never().should_checkpoint(unprovable, costs)


@pytest.mark.parametrize(("weight", "above_s"), [(1.1 * LIGHT, 0.0), (1.0, 1.1 * LONG)])
def test_no_call_waits_for_a_long_checkpoint_of_what_cannot_be_proven(weight: float, above_s: float) -> None:
    """It has many processes or much memory, or the one above has taken long."""
    costs = Costs("local")
    unprovable = Rebuild(False, 1, 0.0, proven=False, provable=False, checkpoint_s=above_s, weight=weight)
    assert not Default().should_checkpoint(unprovable, costs)
    assert Default().should_checkpoint(replace(unprovable, replay_s=0.4 / UNPROVEN_SHARE), costs)
    assert Default().should_checkpoint(replace(unprovable, weight=1.0), busy_costs()), "all takes longer there"
    for _ in range(100):
        costs.paused(0.4)  # agents think for longer than it takes
    assert Default().should_checkpoint(unprovable, costs)
    assert not Default().should_checkpoint(replace(unprovable, checkpoint_s=0.41), costs)


def test_what_is_paid_for_beforehand_does_not_pile_up() -> None:
    costs = Costs("local")
    costs.paused(1e6)
    assert costs.allowance_s == BURST


def test_a_sandbox_that_was_dear_to_checkpoint_stays_so() -> None:
    assert Default().should_checkpoint(Rebuild(False, 1, 1.0), Costs("local"))
    assert not Default().should_checkpoint(Rebuild(False, 1, 1.0, checkpoint_s=2.0, fork_s=1.5), Costs("local"))
    assert Default().should_checkpoint(Rebuild(False, 1, 2.1, checkpoint_s=2.0, fork_s=1.5), Costs("local"))


@pytest.mark.parametrize("seed", range(20))
def test_never_worse_than_twice_the_best_in_hindsight(seed: int) -> None:
    """One state, rebuilt any number of times: the oracle knows the number beforehand and snapshots at once or never."""
    chance = random.Random(seed)
    costs = Costs("local")
    replay_s = chance.uniform(0.0, 0.2)
    rebuilds = chance.randrange(0, 200)
    begin_s = costs.fork_s
    once_s = begin_s + replay_s + CALL_OVERHEAD

    paid, spent = 0.0, 0.0
    snapshotted = Default().should_checkpoint(Rebuild(False, 1, replay_s), costs)
    paid += costs.checkpoint_s if snapshotted else 0.0
    for _ in range(rebuilds):
        if snapshotted:
            paid += costs.fork_s
            continue
        paid += once_s
        spent += once_s
        if Default().should_checkpoint(Rebuild(False, 1, replay_s, spent), costs):
            snapshotted = True
            paid += costs.checkpoint_s
    oracle = min(rebuilds * once_s, costs.checkpoint_s + rebuilds * costs.fork_s)
    # A state that nobody comes back to costs its checkpoint, which is less than executing the calls before it did.
    assert paid <= 2 * max(oracle, once_s) + costs.checkpoint_s


def test_costs_are_medians_of_what_was_measured() -> None:
    costs = Costs("local")
    assert (costs.checkpoint_s, costs.fork_s, costs.start_s) == (0.020, 0.020, 0.008)
    for _ in range(ENOUGH - 1):
        costs.add("fork", 0.1)
    assert costs.fork_s == 0.020
    costs.add("fork", 0.1)
    assert costs.fork_s == 0.1
    costs.add("fork", 100.0)
    assert costs.fork_s == 0.1
    for _ in range(WINDOW):
        costs.add("fork", 0.01)
    assert costs.fork_s == 0.01
    assert costs.checkpoint_s == 0.020


def test_costs_are_handed_on_to_other_processes() -> None:
    first = Costs("local")
    for _ in range(9):
        first.add("checkpoint", 0.05)
    first.add("checkpoint", 1000.0)  # an outlier must not spoil the mean
    kept = first.take_unsaved()
    assert kept["cost.local.checkpoint.n"] == 10
    assert first.take_unsaved() == {}
    second = Costs("local", kept)
    assert 0.05 <= second.checkpoint_s <= 0.1
    assert second.fork_s == 0.020
    assert Costs("local", {"cost.local.fork.n": 2.0, "cost.local.fork.s": 9.0}).fork_s == 0.020
