"""A tabular agent that learns with a prior: Q-learning whose actions are drawn from the posterior."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tvsnap import UsageError
from tvsnap.plugins.priors.cache import PriorCache
from tvsnap.plugins.priors.distributions import Proposals
from tvsnap.plugins.priors.sampling import Cooling, posterior, sample


class Discrete(Protocol):
    """An environment with discrete states and actions, as gymnasium's are."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins a rollout; returns the first observation, which can be hashed, and more about it."""
        ...

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes an action, by its number; returns observation, reward, end, end for lack of time, and more."""
        ...


@dataclass(frozen=True, slots=True)
class RolloutSummary:
    """The outcome of one rollout.

    Attributes:
        reward: the sum of its rewards, not discounted.
        steps: the number of actions.
        asked: the number of questions to the model.
    """

    reward: float
    steps: int
    asked: int


class QLearner:
    """Learns Q(s, a) from what it sees, and acts by prior(a|s) exp(Q(s, a) / T).

    Attributes:
        values: Q by observation and action, in units of return.
        hits: the number of the cache's answers to this agent: it makes the temperature fall.
    """

    def __init__(
        self,
        cache: PriorCache,
        goal: str,
        actions: Sequence[str],
        model: Callable[[str, Sequence[str]], Proposals],
        describe: Callable[[Any], str],
        *,
        temperature: Callable[[int], float] | None = None,
        rate: float = 0.2,
        discount: float = 0.97,
        seed: int = 0,
    ) -> None:
        """
        Args:
            cache: the cache of the model's proposals.
            goal: the agent's goal.
            actions: the names of the environment's actions, in the order of their numbers.
            model: returns proposals, given the text of a state and the actions.
            describe: returns an abstraction of an observation in words.
            temperature: returns the temperature for a number of hits; by default a `Cooling`.
            rate: the rate of learning, above 0 and at most 1.
            discount: the discount of later rewards, 0 to 1.
            seed: the seed of the actions that are drawn.

        Raises:
            UsageError: the rate or the discount makes no sense.
        """
        if not (0.0 < rate <= 1.0 and 0.0 <= discount <= 1.0):
            raise UsageError(f"a learner needs 0 < rate <= 1 and 0 <= discount <= 1, not {rate!r} and {discount!r}")
        self._cache = cache
        self._goal = goal
        self._actions = tuple(actions)
        self._model = model
        self._describe = describe
        self._temperature = Cooling() if temperature is None else temperature
        self._rate = rate
        self._discount = discount
        self._random = random.Random(seed)
        self.values: defaultdict[Any, dict[str, float]] = defaultdict(dict)
        self.hits = 0

    def rollout(self, environment: Discrete, *, seed: int | None = None) -> RolloutSummary:
        """Runs one rollout to its end, and learns from each step.

        Args:
            environment: in which it acts.
            seed: the rollout's seed; None for another one each time.

        Raises:
            UsageError: a reward is not finite.
            TvsnapError: the cache's file cannot be used.
        """
        observation, _ = environment.reset(seed=seed)
        total, steps, questions, over = 0.0, 0, 0, False
        while not over:
            action, was_asked = self._act(observation)
            following, reward, ended, cut_off, _ = environment.step(self._actions.index(action))
            if not math.isfinite(reward):
                raise UsageError(f"the environment's reward for {action!r:.60} is {reward!r}: it must be finite")
            self._learn(observation, action, float(reward), following, final=ended)
            observation, over = following, ended or cut_off
            total, steps, questions = total + float(reward), steps + 1, questions + was_asked
        return RolloutSummary(total, steps, questions)

    def _act(self, observation: Any) -> tuple[str, bool]:
        text = self._describe(observation)
        prior = self._cache.prior(self._goal, self._actions, lambda: self._model(text, self._actions), text=text)
        self.hits += prior.is_hit
        drawn = posterior(prior.probabilities, self.values[observation], self._temperature(self.hits))
        return sample(drawn, self._random), not prior.is_hit

    def _learn(self, observation: Any, action: str, reward: float, following: Any, *, final: bool) -> None:
        ahead = 0.0 if final else max(self.values[following].get(each, 0.0) for each in self._actions)
        before = self.values[observation].get(action, 0.0)
        target = reward + self._discount * ahead
        self.values[observation][action] = before + self._rate * (target - before)
