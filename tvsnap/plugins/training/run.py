"""One run of the experiment: training from one seed in one mode, with tests between the epochs."""

from __future__ import annotations

import asyncio
import json
import secrets
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tvsnap.plugins.training import reports
from tvsnap.plugins.training.agents import Agents
from tvsnap.plugins.training.generation import Generator, ServerGenerator
from tvsnap.plugins.training.loop import Learner
from tvsnap.plugins.training.played import Played, trajectories
from tvsnap.plugins.training.tasks import Task
from tvsnap.plugins.training.waiting import Stragglers


@dataclass
class Run:
    """Training from one seed in one mode, and what has happened in it."""

    mode: str
    seed: int
    agents: Agents
    learner: Learner
    home: Path
    options: Any
    cache: Any
    counted: Any
    everything: list[Played] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    tests: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)

    async def train(self, parts: Sequence[Sequence[Task]], test: Sequence[Task]) -> None:
        """Trains; the parts are the tasks of the updates of an epoch."""
        options, last = self.options, self.options.epochs * len(parts)
        for epoch in range(options.epochs):
            played, spent = list[Played](), dict[str, float]()
            for part in parts:
                await self._test(test, last)
                more, costs = await self._update(part, epoch)
                played += more
                spent = {name: spent.get(name, 0) + cost for name, cost in costs.items()}
            self.everything.extend(played)
            disk = self.counted.stats().budget["disk"][0]
            updates = self.updates[-len(parts) :]
            learned = {"snapshot_bytes": disk, "updates": updates, "rollouts": [*map(told, played)]}
            self.epochs.append({**figures(played), **spent, **learned})
            print(f"seed {self.seed}, {self.mode}, epoch {epoch}: {reports.line(self.epochs[-1])}", flush=True)
            self.keep()
        await self._test(test, last)

    def keep(self, wrong: Mapping[str, int] | None = None) -> None:
        """Writes what has happened so far, and what was wrong in rollouts with a stateless cache."""
        run = {
            "seed": self.seed,
            "mode": self.mode,
            "setting": setting_of(self.options),
            "epochs": self.epochs,
            "tests": self.tests,
            "wrong": wrong,
        }
        (self.options.out / f"run-{self.seed}-{self.mode.replace(' ', '-')}.json").write_text(json.dumps(run))

    async def _test(self, test: Sequence[Task], last: int) -> None:
        """Renews the policy, and tests it if it is time for that; `last` is the number of updates in the end."""
        updates = len(self.updates)
        renew(self.agents.generator, self.learner, self.home / f"adapter-{updates}")
        if updates % self.options.test_every and updates != last:
            return
        groups = await self.agents.play(self.cache, test, 2, f"{self.seed} test {updates}")
        played = [one for group in groups for one in group]
        self.everything.extend(played)
        reward = reports.mean(rewards(played))
        self.tests.append({"updates": updates, "reward": reward, "rollouts": [*map(told, played)]})
        print(f"seed {self.seed}, {self.mode}, after {updates} updates: held-out reward {reward:.3f}", flush=True)

    async def _update(self, part: Sequence[Task], epoch: int) -> tuple[list[Played], dict[str, float]]:
        """Plays the tasks of an update and learns from them; returns the rollouts, and what they have cost."""
        options, generator, credit = self.options, self.agents.generator, self.learner.settings.credit
        before, generating, began = self.counted.stats(), generator.generating_s, time.perf_counter()
        chance = f"{self.seed} train {epoch}"
        stragglers = Stragglers(*options.stragglers) if options.stragglers else None
        groups = await self.agents.play(self.cache, part, options.k, chance, stragglers, epoch=epoch, credit=credit)
        if options.branch:
            states, n = options.branch
            how = {"states": states, "n": n, "epoch": epoch, "credit": credit}
            for group in list(groups):
                groups += (await self.agents.branch(self.cache, group, chance, **how)).groups
        played, after = time.perf_counter(), self.counted.stats()
        self.updates.append(asdict(await asyncio.to_thread(self.learner.learn, trajectories(groups))))
        spent = {
            "generating_s": generator.generating_s - generating,
            "playing_s": played - began,
            "learning_s": time.perf_counter() - played,
            **{name: getattr(after, name) - getattr(before, name) for name in ("forks", "replayed")},
        }
        return [one for group in groups for one in group], spent


def setting_of(options: Any) -> dict[str, Any]:
    """Returns the options as JSON, without what lets in at a server."""
    hidden = {**vars(options), "token": None}
    return {name: str(value) if isinstance(value, Path) else value for name, value in hidden.items()}


def renew(generator: Generator, learner: Learner, folder: Path) -> None:
    """Gives what was learned to a server that generates; a model of this process has it already."""
    if isinstance(generator, ServerGenerator):
        learner.model.save_pretrained(folder)
        generator.renew(folder, f"tvsnap-{secrets.token_hex(8)}")


def figures(played: Sequence[Played]) -> dict[str, Any]:
    """Returns what is reported of the rollouts of an epoch."""
    calls = [call for one in played for call in one.calls]
    ended = [one for one in played if not one.failed]
    seconds = [call.seconds for call in calls] or [0.0]
    return {
        "reward": reports.mean(rewards(played)),
        "calls": len(calls),
        "hit_rate": reports.mean([call.result.source != "executed" for call in calls]),
        "median_call_s": statistics.median(seconds),
        "mean_call_s": statistics.mean(seconds),
        "tools_s": sum(seconds),
        "setup_s": sum(one.prepared_s for one in played),
        "grading_s": sum(one.graded_s for one in played),
        "grades_answered": reports.mean([one.grade is not None and one.grade.source != "executed" for one in ended]),
        "cancelled": sum(one.cancelled for one in played),
        "failed": sum(one.failed for one in played),
        "not_graded": sum(one.grade is None for one in played),
    }


def rewards(played: Sequence[Played]) -> list[float]:
    """Returns the rewards of those that have one: where a verifier failed, there is none."""
    return [one.grade.reward for one in played if one.grade is not None]


def told(one: Played) -> dict[str, Any]:
    """Returns a rollout as JSON."""
    calls = [
        {"command": call.command, "output": call.shown, "source": call.result.source, "seconds": round(call.seconds, 5)}
        for call in one.calls
    ]
    reward = None if one.grade is None else one.grade.reward
    return {"task": one.task.name, "number": one.number, "tokens": one.tokens, "calls": calls, "reward": reward}
