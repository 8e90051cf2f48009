"""An agent that learns FrozenLake with a prior: it asks the model once a state, and learns faster than without one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from tvsnap import UsageError
from tvsnap.plugins.priors import PriorCache, QLearner, RolloutSummary

ACTIONS = ("left", "down", "right", "up")
WIDTH = 4
ROLLOUTS = 120


class Broken:
    """An environment whose reward is no number."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        return 0, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return 0, float("nan"), True, False, {}


def test_a_reward_that_is_not_finite_is_named(tmp_path: Path) -> None:
    with PriorCache(tmp_path / "priors.db") as cache:
        learner = QLearner(cache, "go", ["left"], lambda *_: ["left"], str)
        with pytest.raises(UsageError, match="the environment's reward"):
            learner.rollout(Broken())
        assert not any(learner.values.values())


def describe(observation: Any) -> str:
    row, column = divmod(int(observation), WIDTH)
    return f"You stand in row {row}, column {column}."


class Oracle:
    """An oracle with noise: it prefers the way down and to the right, and knows nothing of holes."""

    def __init__(self, weights: dict[str, float]) -> None:
        self.weights = weights
        self.asked = 0

    def __call__(self, text: str, actions: Sequence[str]) -> dict[str, float]:
        self.asked += 1
        return self.weights


def learn(file: Path, oracle: Oracle, *, refresh: float, seed: int) -> list[RolloutSummary]:
    environment = gymnasium.make("FrozenLake-v1", is_slippery=False)
    # Cells differ in a number alone, which embeddings hardly tell apart: only the same text is the same state.
    with PriorCache(file, delta=1.5, refresh=refresh, seed=seed) as cache:
        learner = QLearner(cache, "reach the goal", ACTIONS, oracle, describe, seed=seed)
        return [learner.rollout(environment, seed=seed + number) for number in range(ROLLOUTS)]


def test_fewer_questions_and_more_success(tmp_path: Path) -> None:
    helpful = {"down": 3.0, "right": 3.0, "left": 1.0, "up": 1.0}
    successes: dict[str, float] = {"cached": 0.0, "not cached": 0.0, "no prior": 0.0}
    for seed in range(3):
        cached, uncached = Oracle(helpful), Oracle(helpful)
        found = learn(tmp_path / f"cached-{seed}.db", cached, refresh=0.0, seed=seed)
        successes["cached"] += sum(rollout.reward for rollout in found)
        assert cached.asked <= WIDTH * WIDTH, "once a state"
        assert cached.asked == sum(rollout.asked for rollout in found)
        found = learn(tmp_path / f"uncached-{seed}.db", uncached, refresh=1.0, seed=seed)
        successes["not cached"] += sum(rollout.reward for rollout in found)
        assert uncached.asked == sum(rollout.steps for rollout in found), "once a step"
        assert uncached.asked > 20 * cached.asked
        even = Oracle(dict.fromkeys(ACTIONS, 1.0))
        found = learn(tmp_path / f"even-{seed}.db", even, refresh=0.0, seed=seed)
        successes["no prior"] += sum(rollout.reward for rollout in found)
    # The hits make the temperature fall, so that the cached agent learns at least as well as one that always asks.
    assert successes["cached"] > 1.3 * successes["no prior"]
    assert successes["cached"] >= successes["not cached"]


def test_an_agent_goes_on_with_what_another_has_asked(tmp_path: Path) -> None:
    first, second = Oracle({"down": 1.0, "right": 1.0}), Oracle({"down": 1.0, "right": 1.0})
    learn(tmp_path / "priors.db", first, refresh=0.0, seed=1)
    learn(tmp_path / "priors.db", second, refresh=0.0, seed=1)
    assert first.asked > 0
    assert second.asked == 0
