"""Branches: rollouts that go on from states in which other rollouts stood, with what was said there."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, NamedTuple

from tvsnap import UsageError
from tvsnap.errors import StateLost
from tvsnap.plugins.training.credit import check_credit, give, values_of
from tvsnap.plugins.training.generation import check_least
from tvsnap.plugins.training.loop import Credit
from tvsnap.plugins.training.played import Played
from tvsnap.plugins.training.waiting import until_then
from tvsnap.types import TaskValues

Play = Callable[[Played, Any, Sequence[object]], Coroutine[Any, Any, None]]
"""Plays a rollout from where it stands to its grade, by a seed."""


@dataclass
class Branches:
    """The branches of a group's rollouts, and what they have cost.

    Attributes:
        groups: the branches, those of one state together. Those that were stopped are left out.
        tokens: that the model wrote in all of them, those included that were stopped.
        seconds: that they took.
        stopped: how many were stopped, as the time was up.
        ended: why no more branches were begun: the budget of tokens or seconds was used up; or there were no more
            `states` to begin in, or none were wanted.
    """

    groups: list[list[Played]] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    stopped: int = 0
    ended: Literal["tokens", "seconds", "states"] = "states"


@dataclass(frozen=True)
class BranchRules:
    """How many branches are begun, where, and until when; see `Agents.branch`."""

    states: int
    n: int
    depths: Collection[int]
    tokens: int | None
    seconds: float | None
    reseed: bool
    epoch: int | None
    credit: Credit

    def __post_init__(self) -> None:
        check_credit(self.credit)
        if not isinstance(self.depths, Collection):
            raise UsageError(f"depths must be a list of whole numbers, not {self.depths!r}")
        for depth in self.depths:
            check_least("each of depths", depth)
        check_least("states", self.states)
        check_least("n", self.n)
        if self.tokens is not None:
            check_least("tokens", self.tokens)
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise UsageError(f"seconds must be a finite number larger than 0, not {self.seconds!r}")


class Place(NamedTuple):
    """A state, and the turn of a rollout that stood there."""

    state: str
    one: Played
    turn: int


class Branching:
    """Branches of one group's rollouts."""

    def __init__(self, cache: Any, seed: str, rules: BranchRules, play: Play) -> None:
        self._cache, self._seed, self._rules, self._play = cache, seed, rules, play
        self._began = time.monotonic()
        self._until = math.inf if rules.seconds is None else self._began + rules.seconds
        self._tried, self._result = set[str](), Branches()

    async def grow(self, group: Sequence[Played]) -> Branches:
        """Begins branches and plays them, and gives them and the group their credit; see `Agents.branch`."""
        rules, result = self._rules, self._result
        graded = [one for one in group if one.grade is not None]
        while graded:
            groups = await self._round(graded)
            in_full = [[one for one in branches if not one.cancelled] for branches in groups]
            result.groups += [branches for branches in in_full if branches]
            graded += [one for branches in in_full for one in branches if one.grade is not None]
            result.ended = self._used_up() or "states"
            if self._used_up() or not groups or (rules.tokens is None and rules.seconds is None):
                break
        result.seconds = time.monotonic() - self._began
        await give(rules.credit, self._cache, [*group, *chain.from_iterable(result.groups)])
        return result

    def _used_up(self) -> Literal["tokens", "seconds"] | None:
        if time.monotonic() >= self._until:
            return "seconds"
        tokens = self._rules.tokens
        return "tokens" if tokens is not None and self._result.tokens >= tokens else None

    async def _round(self, graded: Sequence[Played]) -> list[list[Played]]:
        """Plays branches of the best states that were not tried yet; returns them, those that were stopped included."""
        values = await values_of(self._cache, graded)
        groups, running = list[list[Played]](), list[Coroutine[Any, Any, None]]()
        async with contextlib.AsyncExitStack() as stack:
            for place in _places(graded, values, self._rules.depths):
                if place.state in self._tried:
                    continue
                if len(groups) == self._rules.states or self._used_up() == "seconds":
                    break
                with contextlib.suppress(StateLost):
                    branches, parts = await self._begin(stack, place)
                    groups.append(branches)
                    running += parts
            in_time = await until_then(running, self._until)
        for one, ended in zip(chain.from_iterable(groups), in_time, strict=True):
            one.cancelled = not ended
            self._result.tokens += one.written
            self._result.stopped += one.cancelled
        return groups

    async def _begin(
        self, stack: contextlib.AsyncExitStack, place: Place
    ) -> tuple[list[Played], list[Coroutine[Any, Any, None]]]:
        """Begins the branches of a state; returns them, and what plays them."""
        (state, one, turn), rules = place, self._rules
        self._tried.add(state)
        numbers = range(len(self._tried) * rules.n - rules.n, len(self._tried) * rules.n)
        seeds = [(self._seed, one.task.name, one.task.instruction, "branch", number) for number in numbers]
        options = {"task": one.task.name, "epoch": rules.epoch, "reseed": rules.reseed}
        rollouts = await stack.enter_async_context(self._cache.fork(state, rules.n, as_rollouts=True, **options))
        past, setup = one.tokens[: one.turns[turn][0]], int(rules.reseed)
        branches = [
            Played(one.task, n, list(past), rollout=each.id, before=one.before + turn, setup=setup, tree=one.tree)
            for n, each in enumerate(rollouts)
        ]
        return branches, list(map(self._play, branches, rollouts, seeds))


def _places(graded: Sequence[Played], values: TaskValues, depths: Collection[int]) -> list[Place]:
    """Returns states to branch from, the best first, each with a rollout that stood there, and its turn there.

    The first turn is no such place: to begin there is to begin anew.
    """
    places: dict[str, Place] = {}
    for one in graded:
        credit = values.of(one.rollout or "")
        for place, state in zip(credit.places, credit.states, strict=True):
            turn = place - one.setup - 1
            if 0 < turn < len(one.turns) and (not depths or one.before + turn in depths):
                places.setdefault(state, Place(state, one, turn))
    spread = {value.state: value.variance or 0.0 for value in values.states}
    ranked = sorted(
        places.values(), key=lambda each: -spread[each.state]
    )  # of equal ones, in the order of the rollouts
    return [each for each in ranked if depths or spread[each.state] > 0]
