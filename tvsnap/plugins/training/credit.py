"""The advantages that turns of rollouts are given, if these are not their rollouts'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from tvsnap import UsageError
from tvsnap.plugins.training.loop import Credit, tree_advantages
from tvsnap.plugins.training.played import Played
from tvsnap.types import TaskValues


def check_credit(credit: Credit) -> None:
    """Raises UsageError unless there is such a credit."""
    if credit not in get_args(Credit):
        raise UsageError(f"credit must be one of {', '.join(get_args(Credit))}, not {credit!r}")


async def give(credit: Credit, cache: Any, group: Sequence[Played]) -> None:
    """Gives the turns of a group's rollouts, branches included, their advantages, if these are not the rollouts'."""
    graded = [one for one in group if one.grade is not None]
    if credit == "state" and graded:
        values = await values_of(cache, graded)
        for one in graded:
            one.advantages = values.of(one.rollout or "").by_turn(len(one.turns), setup=one.setup, ended=one.done)
    elif credit == "tree":
        rewards = [(one.tree, one.trajectory.reward) for one in graded]
        for one, advantage in zip(graded, tree_advantages(rewards), strict=True):
            one.advantages = (advantage,) * len(one.turns)


async def values_of(cache: Any, graded: Sequence[Played]) -> TaskValues:
    """Returns what the states were worth in which rollouts of a task stood."""
    if any(one.rollout is None for one in graded):
        raise UsageError("credit by state needs a cache that records what rollouts do, not use_cache=False")
    values: TaskValues = await cache.values(graded[0].task.name, rollouts=[one.rollout for one in graded])
    return values
