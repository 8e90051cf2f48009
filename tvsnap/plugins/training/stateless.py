"""A cache keyed by the call alone, as a comparison: what it answers is wrong where calls have effects."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvsnap
from tvsnap.plugins.training.played import Played


class StatelessCache:
    """A cache that answers a call by what it once returned, whatever the state: wrong, and here to show how wrong."""

    def __init__(self, cache: tvsnap.AsyncCache, executed: Collection[str] = ()) -> None:
        """
        Args:
            cache: executes what is not answered; it has `use_cache=False`.
            executed: commands that are always executed, such as those that set a task up.
        """
        self._cache = cache
        self.executed = frozenset(executed)
        self.known: dict[str, tvsnap.ToolResult] = {}

    def group(self, image: str, task: str, n: int, **options: Any) -> list[StatelessRollout]:
        """Returns rollouts; see `tvsnap.AsyncCache.group`."""
        return [StatelessRollout(self, rollout) for rollout in self._cache.group(image, task, n, **options)]


class StatelessRollout:
    """A rollout of a `StatelessCache`."""

    def __init__(self, cache: StatelessCache, rollout: tvsnap.AsyncRollout) -> None:
        self._cache = cache
        self._rollout = rollout
        self.grade, self.record = rollout.grade, rollout.record

    @property
    def id(self) -> str | None:
        """Its id in the graph; None where nothing is recorded."""
        return self._rollout.id

    async def call(self, name: str, arguments: Mapping[str, Any], timeout: float) -> tvsnap.ToolResult:
        """Makes a call, or answers it; see `tvsnap.AsyncRollout.call`."""
        if not self._cache.executed.isdisjoint(arguments.values()):
            return await self._rollout.call(name, arguments, timeout)
        call = tvsnap.ToolCall(name, arguments)
        earlier = self._cache.known.get(call.key)
        if earlier is not None:
            return earlier.from_source("hit")
        result = await self._rollout.call(name, arguments, timeout)
        self._cache.known.setdefault(call.key, result)
        return result

    async def __aenter__(self) -> StatelessRollout:
        await self._rollout.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._rollout.close()


@dataclass(frozen=True)
class Errors:
    """What was wrong in rollouts, beside an execution of the same calls.

    Attributes:
        answered: calls that were answered, not executed.
        wrong: those of them that were answered with another output.
        rollouts: all rollouts that were graded.
        wrong_rewards: those that were given another reward.
    """

    answered: int
    wrong: int
    rollouts: int
    wrong_rewards: int


async def errors(cache: Any, played: Sequence[Played], timeout: float) -> Errors:
    """Makes the calls of rollouts again, in order, and returns what they were answered wrongly.

    Args:
        cache: the one to make them through, a `tvsnap.AsyncCache`, which is exact.
        played: the rollouts.
        timeout: seconds that a command may take.
    """
    same: dict[tuple[str, ...], list[Played]] = {}
    for one in played:
        if one.grade is not None:
            key = (one.task.name, one.task.instruction, str(one.failed), *(call.command for call in one.calls))
            same.setdefault(key, []).append(one)
    room = asyncio.Semaphore(16)

    async def execute(one: Played) -> tuple[list[str], float]:
        async with room, cache.rollout(one.task.image, one.task.name) as rollout:
            for tool, arguments in one.task.preparation():
                await rollout.call(tool, arguments, timeout)
            outputs = [
                (await rollout.call(one.task.tool, one.task.arguments(call.command), timeout)).output
                for call in one.calls
            ]
            return outputs, 0.0 if one.failed else (await rollout.grade(one.task.verifier)).reward

    answered = wrong = rewards = 0
    for ones, (outputs, reward) in zip(
        same.values(), await asyncio.gather(*(execute(ones[0]) for ones in same.values())), strict=True
    ):
        for one in ones:
            hits = [n for n, call in enumerate(one.calls) if call.result.source != "executed"]
            answered += len(hits)
            wrong += sum(one.calls[n].result.output != outputs[n] for n in hits)
            rewards += one.grade is not None and one.grade.reward != reward
    return Errors(answered, wrong, sum(map(len, same.values())), rewards)
