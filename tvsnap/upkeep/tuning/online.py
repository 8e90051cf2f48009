"""Adapts the tuning of a cache while it is used: a trial lasts some rollouts, and is undone unless it was better."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from tvsnap.cache import Cache
from tvsnap.model.arguments import check_whole
from tvsnap.model.errors import UsageError
from tvsnap.model.stats import Stats
from tvsnap.model.tuning import TUNING_BOUNDS, Tuning

TRIED = ("break_even", "unproven_share", "record_share", "half_life_s", "incumbency", "new_call_chance")
"""The parameters that are tried one after the other."""
FACTOR = 1.5
"""By which a parameter is made larger or smaller in a trial."""
BETTER = 0.02
"""How much larger the share of time that is saved must be in a trial than in the windows around it, to be kept."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A parameter that was changed for a window of rollouts.

    Attributes:
        name: of the parameter.
        value: what it was set to.
        before, during, after: the share of the time of calls that the cache saved in the window before it, in its own,
            and in the one after it, in which the parameter had its old value again. Below 0 where it cost more.
        kept: whether it was better than both, and is kept.
    """

    name: str
    value: float
    before: float
    during: float
    after: float
    kept: bool


@dataclass
class OnlineTuner:
    """Adapts the tuning of a cache to the rollouts that are made.

    Windows of rollouts alternate: one with the present tuning, one in which one parameter is changed, one with the
    present tuning again. The change is kept only where its window was better than both of the others; otherwise the
    old value simply stays (roll-back). So what other rollouts do meanwhile, and a task that is easier, are not taken
    for the parameter's merit. Nothing that is tried changes what a rollout sees. Where `cache.tuning` is set meanwhile,
    the trial is given up, and later ones begin from what was set.

    Attributes:
        cache: whose tuning is adapted. Other processes on the data directory have a tuning of their own.
        rollouts: how many make a window, at least 1.
        seed: of the choice of parameters.
        trials: those that have ended, oldest first.

    Raises:
        UsageError: a window would have no rollout, or the cache answers nothing (`use_cache=False`).
    """

    cache: Cache
    rollouts: int = 50
    seed: int = 0
    trials: list[Trial] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        check_whole(self.rollouts, "rollouts", 1)
        if not self.cache.use_cache:
            raise UsageError("there is nothing to tune where the cache answers nothing (use_cache=False)")
        self._random = random.Random(self.seed)
        self._base = self.cache.tuning
        self._set = self._base  # what the cache has, if nobody else has set it
        self._stopped = False
        self._tried: Tuning | None = None
        self._name = ""
        self._shares: list[float] = []
        self._ended = 0
        self._before = self.cache.stats()

    def record(self) -> None:
        """Takes note that a rollout has ended; at the end of a window, the tuning may change; not once stopped."""
        if self._stopped:
            return
        if self.cache.tuning != self._set:
            self._base = self._set = self.cache.tuning
            self._shares, self._ended, self._before = [], 0, self.cache.stats()
        self._ended += 1
        if self._ended < self.rollouts:
            return
        self._ended = 0
        now = self.cache.stats()
        self._shares.append(saved_share(self._before, now))
        self._before = now
        if len(self._shares) == 1:
            self._try()
        elif len(self._shares) == 2:
            self._use(self._base)
        else:
            self._decide()

    def stop(self) -> None:
        """Ends tuning: the cache has the tuning that was found so far, or what was set meanwhile."""
        if not self._stopped and self.cache.tuning == self._set:
            self._use(self._base)
        self._stopped = True

    def _use(self, tuning: Tuning) -> None:
        self.cache.tuning = self._set = tuning

    def _try(self) -> None:
        self._name = self._random.choice(TRIED)
        low, high = TUNING_BOUNDS[self._name]
        value = getattr(self._base, self._name) * self._random.choice((FACTOR, 1 / FACTOR))
        self._tried = replace(self._base, **{self._name: min(high, max(low, value))})
        self._use(self._tried)

    def _decide(self) -> None:
        assert self._tried is not None
        before, during, after = self._shares
        kept = during > max(before, after) + BETTER
        self.trials.append(Trial(self._name, getattr(self._tried, self._name), before, during, after, kept))
        if kept:
            self._base = self._tried
        self._use(self._base)
        self._shares = []  # the next trial has a window of its own before it


def saved_share(before: Stats, after: Stats) -> float:
    """Returns which share of the time of calls the cache saved between two moments.

    That is the time of the answered calls, less all that rollouts waited for and the cache did beside the calls, as a
    share of the time that all calls would have taken. Below 0 where it cost more than it saved; 0 without calls.

    Args:
        before, after: what `Cache.stats()` returned at these moments.
    """

    def passed(name: str) -> float:
        return float(getattr(after, name) - getattr(before, name))

    answered, executed = passed("answered_s"), passed("tool_time_s")
    own = ("hit_time_s", "waited_s", "start_time_s", "fork_time_s", "replay_time_s", "checkpoint_time_s")
    cost = sum(map(passed, own)) + passed("prefork_time_s")
    return (answered - cost) / (answered + executed) if answered + executed > 0.0 else 0.0
