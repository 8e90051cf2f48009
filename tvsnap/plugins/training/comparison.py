"""Algorithms compared at equal tokens and at equal seconds: LOOP, LOOP with credit by state, and Tree-GRPO."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tvsnap.plugins.training.agents import Agents
from tvsnap.plugins.training.loop import Learner
from tvsnap.plugins.training.played import Played, trajectories
from tvsnap.plugins.training.reports import markdown, mean
from tvsnap.plugins.training.tasks import Task
from tvsnap.plugins.training.waiting import together

METHODS = ("loop", "loop-state", "tree-grpo")
"""Names of variants of `tvsnap.training.loop`."""
_TITLES = (
    *("seed", "method", "updates", "rollouts", "tokens", "seconds", "reward before", "at equal tokens"),
    *("at equal seconds", "variance of the gradient", "noise in it", "steps in shared states"),
)


@dataclass(kw_only=True)
class Comparison:
    """Training by one algorithm until a budget of tokens and one of seconds are both used up; a test when each is.

    Tokens are those that the model writes; seconds are those of rollouts and learning, without tests.

    Attributes:
        cache: a cache that records.
        agents: plays the rollouts.
        learner: learns from them; its variant is the algorithm.
        parts: the tasks of the first update, of the second, and so on; then again from the first.
        test: other tasks, each of which is played twice in a test.
        seed: of chance.
        k: rollouts of a task for an update. Tree-GRPO plays fewer, and lets as many branches go on from these.
        branch: of Tree-GRPO: from how many states branches begin, and how many in each.
        depths: of these states, see `Agents.branch`.
        budget: tokens and seconds.
        renew: is called before rollouts, with the number of updates, so that the generator has the learned policy.
        keep: is given what happened so far, after each update.
    """

    cache: Any
    agents: Agents
    learner: Learner
    parts: Sequence[Sequence[Task]]
    test: Sequence[Task]
    seed: int
    k: int
    branch: tuple[int, int]
    depths: Sequence[int]
    budget: tuple[int, float]
    renew: Callable[[int], object]
    keep: Callable[[Mapping[str, Any]], object]
    _epochs: list[dict[str, Any]] = field(default_factory=list, init=False)
    _tests: list[dict[str, Any]] = field(default_factory=list, init=False)
    _spent: dict[str, float] = field(default_factory=lambda: {"tokens": 0.0, "seconds": 0.0}, init=False)

    async def run(self) -> None:
        """Trains and tests."""
        limits = dict(zip(self._spent, self.budget, strict=True))
        self.renew(0)
        await self._test("start")
        while unspent := [name for name in self._spent if self._spent[name] < limits[name]]:
            await self._update()
            self.renew(len(self._epochs))
            for name in unspent:
                if self._spent[name] >= limits[name]:
                    await self._test(name)
            self.keep({"epochs": self._epochs, "tests": self._tests})

    async def _test(self, at: str) -> None:
        updates = len(self._epochs)
        groups = await self.agents.play(self.cache, self.test, 2, f"{self.seed} test {updates}")
        rewards = [one.grade.reward for group in groups for one in group if one.grade is not None]
        self._tests.append({"at": at, "updates": updates, **self._spent, "reward": mean(rewards)})

    async def _update(self) -> None:
        """Plays the tasks of an update, and learns from them."""
        began, spent, updates = time.monotonic(), self._spent, len(self._epochs)
        groups = await self._played(self.parts[updates % len(self.parts)], f"{self.seed} train {updates}")
        played = time.monotonic()
        compared = trajectories(groups)
        noise = await asyncio.to_thread(self.learner.noise, compared) if len(compared) > 1 else None
        measured = time.monotonic()
        update = await asyncio.to_thread(self.learner.learn, compared)
        all_of = [one for group in groups for one in group]
        spent["tokens"] += sum(one.written for one in all_of)
        spent["seconds"] += played - began + time.monotonic() - measured
        tree = self.learner.settings.credit == "tree"
        rewards = [one.grade.reward for one in all_of if one.grade is not None and not (tree and one.before)]
        self._epochs.append(
            {
                **spent,
                "rollouts": len(all_of),
                "reward": mean(rewards),
                "shared": await _shared(self.cache, groups),
                "noise": None if noise is None else asdict(noise),
                "update": asdict(update),
            }
        )

    async def _played(self, of: Sequence[Task], chance: str) -> list[list[Played]]:
        """Returns the rollouts of each task for an update, with branches if the algorithm has trees."""
        cache, agents, credit = self.cache, self.agents, self.learner.settings.credit
        if credit != "tree":
            return await agents.play(cache, of, self.k, chance, credit=credit)
        states, n = self.branch
        groups = await agents.play(cache, of, max(2, self.k - states * n), chance)
        room = asyncio.Semaphore(max(1, agents.at_once // (states * n)))

        async def grown(group: list[Played]) -> list[Played]:
            async with room:
                more = await agents.branch(cache, group, chance, states=states, n=n, depths=self.depths, credit="tree")
            return [*group, *(one for branches in more.groups for one in branches)]

        return await together([grown(group) for group in groups])


async def _shared(cache: Any, groups: Sequence[Sequence[Played]]) -> float:
    """Returns the share of the model's calls that were made in a state in which another rollout stood, too."""
    shared = []
    for group in groups:
        graded = [one for one in group if one.grade is not None]
        if not graded:
            continue
        values = await cache.values(graded[0].task.name, rollouts=[one.rollout for one in graded])
        for one in graded:
            credit = values.of(one.rollout or "")
            steps = zip(credit.places, credit.stood, strict=True)
            shared += [stood > 1 for place, stood in steps if place > one.setup]
    return mean(shared)


def write(folder: Path, command: str) -> str:
    """Writes comparison.md of all compared runs in a folder; returns its text.

    Args:
        folder: where they are.
        command: the command that made them, with its date.
    """
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("compare-*.json"))]
    rows = [_row(run) for run in runs]
    text = "\n".join([command, "", *markdown(_TITLES, rows), ""])
    (folder / "comparison.md").write_text(text)
    return text


def _row(run: Mapping[str, Any]) -> list[object]:
    """Returns the figures of a run. Its noise is the variance beside the squared norm of the gradient."""
    rewards = {each["at"]: f"{each['reward']:.3f}" for each in run["tests"]}
    noise = [epoch["noise"] for epoch in run["epochs"] if epoch["noise"]]
    variance, square = (mean([each[name] for each in noise]) for name in ("variance", "square"))
    last = run["epochs"][-1]
    return [
        *(run["seed"], run["method"], len(run["epochs"]), sum(epoch["rollouts"] for epoch in run["epochs"])),
        *(f"{last['tokens']:.0f}", f"{last['seconds']:.0f}"),
        *(rewards.get(name, "") for name in ("start", "tokens", "seconds")),
        *(f"{variance:.3g}", f"{variance / square:.2f}" if square else ""),
        f"{statistics.mean(epoch['shared'] for epoch in run['epochs']):.2f}",
    ]
