"""Rollouts of a tiny model in real sandboxes: the same with the cache and without, and what the learner is given."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

import tvsnap
from tvsnap.engine.grade_calls import GRADE
from tvsnap.images import ImageStore
from tvsnap.plugins.training.agents import Agents, command_in
from tvsnap.plugins.training.branching import Branches
from tvsnap.plugins.training.generation import ModelGenerator
from tvsnap.plugins.training.loop import Learner, tree_advantages, variant
from tvsnap.plugins.training.played import Played, trajectories
from tvsnap.plugins.training.tasks import tasks
from tvsnap.plugins.training.waiting import Stragglers


class Scripted:
    """Writes what it is told instead of asking a model, but draws as the seed says."""

    generating_s = 0.0

    def __init__(self, tokenizer: Any, *scripts: tuple[str, ...]) -> None:
        self._tokenizer = tokenizer
        self._scripts = scripts

    async def write(self, past: Sequence[int], seed: int) -> list[int]:
        said = self._tokenizer.decode(past)
        turn = said.count("Output:")
        script = self._scripts[seed % len(self._scripts)]
        if turn:  # one of those that began like this
            begun = [each for each in self._scripts if f">{each[0]}|" in said]
            script = begun[seed % len(begun)]
        text = script[turn] if turn < len(script) else "DONE"
        return [*self._tokenizer.encode(text, add_special_tokens=False), self._tokenizer.eos_token_id]


@pytest.fixture
def images() -> ImageStore:
    return ImageStore(Path(os.environ["TVSNAP_HOME"]))


def play(agents: Agents, home: Path, images: Any, k: int = 4, **options: Any) -> list[list[Played]]:
    async def go() -> list[list[Played]]:
        async with tvsnap.AsyncCache(home, images=images, policy="default", **options) as cache:
            return await agents.play(cache, tasks(n=2, kinds=["file", "count"]), k)

    return asyncio.run(go())


class Counted(Scripted):
    """Keeps which turn each text was written for."""

    def __init__(self, tokenizer: Any, *scripts: tuple[str, ...]) -> None:
        super().__init__(tokenizer, *scripts)
        self.turns: list[int] = []

    async def write(self, past: Sequence[int], seed: int) -> list[int]:
        self.turns.append(self._tokenizer.decode(past).count("Output:"))
        return await super().write(past, seed)


def test_as_many_rollouts_are_played_at_a_time_as_asked(tmp_path: Path, images: ImageStore, tokenizer: Any) -> None:
    played = []
    for at_once in (1, 3, 1000):
        generator = Counted(tokenizer, ("pwd", "ls"))
        agents = Agents(generator, tokenizer, at_once=at_once)
        groups = play(agents, tmp_path / str(at_once), images, use_cache=False)
        begun = accumulate({0: 1, 2: -1}.get(turn, 0) for turn in generator.turns)  # without those that write last
        assert max(begun) <= at_once
        assert len(generator.turns) == 8 * 3
        played.append([[one.tokens for one in group] for group in groups])
    assert played[0] == played[1] == played[2]


def test_a_solution_is_rewarded_and_what_it_said_is_told_apart(
    tmp_path: Path, images: ImageStore, tokenizer: Any
) -> None:
    (task,) = tasks(n=1, kinds=["file"])
    agents = Agents(Scripted(tokenizer, task.solutions[1], ("echo no",)), tokenizer, turns=4)
    group, other = play(agents, tmp_path, images, 6)
    for one in group:
        commands = [call.command for call in one.calls]
        assert (one.trajectory.reward == 1.0) == (commands == list(task.solutions[1]))
        said = [agents.tokenizer.decode(one.tokens[first:end]) for first, end in one.turns]
        assert said == [*(f"{command}|" for command in commands), "DONE|"]
        assert [one.tokens[end] for _, end in one.turns[:-1]] == agents._encode(">") * len(commands)
        assert "Output:" not in "".join(said)
        assert agents.tokenizer.decode(one.tokens).startswith("<You work at a shell.")
    assert {one.trajectory.reward for one in group} == {0.0, 1.0}
    assert {one.trajectory.reward for one in other} == {0.0}
    assert agents.solved(task, 1).tokens == max(group, key=lambda one: one.trajectory.reward).tokens


def test_a_rollout_that_does_not_end_in_its_turns_has_failed(
    tmp_path: Path, images: ImageStore, tokenizer: Any
) -> None:
    """What it did does not count: the first script solves the task, and goes on."""
    (task,) = tasks(n=1, kinds=["file"])
    solution = task.solutions[0]
    scripts = ((*solution, "pwd"), (*solution[:-1], f"{solution[-1]} #"))
    agents = Agents(Scripted(tokenizer, *scripts), tokenizer, turns=len(solution))

    async def go() -> tuple[list[Played], list[float]]:
        async with tvsnap.AsyncCache(tmp_path, images=images, policy="default") as cache:
            (group,) = await agents.play(cache, [task], 8)
            return group, [credit.reward for credit in (await cache.values(task.name)).rollouts]

    group, recorded = asyncio.run(go())
    for one in group:
        commands = tuple(call.command for call in one.calls)
        assert len(commands) == len(solution)
        assert len(one.turns) == len(solution) + 1
        assert (one.failed, one.done) == ((True, False) if commands == scripts[0][:-1] else (False, True))
        assert one.trajectory.reward == (0.0 if one.failed else 1.0)
    assert {one.failed for one in group} == {True, False}
    assert recorded == [one.trajectory.reward for one in group]


def test_turns_have_the_credit_of_their_states(tmp_path: Path, images: ImageStore, tokenizer: Any) -> None:
    """Beside the others of the group alone, whatever was made of the task before, and with calls that set it up."""
    (task,) = tasks(n=1, kinds=["count"])
    assert task.setup
    scripts = (task.solutions[0], ("pwd",))
    agents = Agents(Scripted(tokenizer, *scripts), tokenizer, turns=4)

    async def go() -> list[list[Played]]:
        async with tvsnap.AsyncCache(tmp_path, images=images) as cache:
            await agents.play(cache, [task], 3, "before", epoch=0)
            return await agents.play(cache, [task], 6, epoch=0, credit="state")

    async def without_records() -> None:
        async with tvsnap.AsyncCache(tmp_path, images=images, use_cache=False) as cache:
            await agents.play(cache, [task], 2, credit="state")

    (group,) = asyncio.run(go())
    rewards = {
        script[0]: [one.trajectory.reward for one in group if one.calls[0].command == script[0]] for script in scripts
    }
    mean = sum(map(sum, rewards.values())) / 6
    assert all(rewards.values())
    for one in group:
        own = rewards[one.calls[0].command]
        assert one.advantages is not None
        assert one.advantages[0] == pytest.approx((sum(own) / len(own) - mean) * 6 / 5)
        assert len(one.advantages) == len(one.turns)
        assert one.trajectory.advantages == one.advantages
    with pytest.raises(tvsnap.UsageError, match="needs a cache that records"):
        asyncio.run(without_records())


def branched(
    home: Path, images: Any, agents: Agents, k: int = 6, then: Callable[[], object] = lambda: None, **options: Any
) -> tuple[list[Played], Branches, int]:
    """Plays a group, and lets branches go on from it; returns both, and how many calls the branches executed.

    `then` is called in between.
    """
    (task,) = tasks(n=1, kinds=["count"])

    async def go() -> tuple[list[Played], Branches, int]:
        async with tvsnap.AsyncCache(home, images=images, policy="eager") as cache:
            (group,) = await agents.play(cache, [task], k, credit=options.get("credit", "rollout"))
            then()
            before = cache.stats().executed
            found = await agents.branch(cache, group, **options)
            return group, found, cache.stats().executed - before

    return asyncio.run(go())


def test_branches_go_on_with_what_was_said(tmp_path: Path, images: ImageStore, tokenizer: Any) -> None:
    """From where the rollouts of a group came to different ends; what led there is neither said nor executed again."""
    (task,) = tasks(n=1, kinds=["count"])
    first, solution = "touch /tmp/begun", " && ".join(task.solutions[0])
    generator = Counted(tokenizer, (first, solution), (first, "pwd"))
    agents = Agents(generator, tokenizer, turns=2)
    options: dict[str, Any] = {"states": 3, "n": 4, "credit": "state"}
    group, found, executed = branched(tmp_path, images, agents, then=generator.turns.clear, **options)
    (of_state,) = found.groups
    assert len({one.trajectory.reward for one in group}) == 2
    for one in of_state:
        assert one.before == 1
        assert one.tokens[: one.turns[0][0]] == group[0].tokens[: group[0].turns[1][0]]
        assert first not in [call.command for call in one.calls]
        assert len(one.calls) <= 1
        assert one.grade is not None
        assert one.advantages is not None
        assert len(one.advantages) == len(one.turns)
    assert executed <= len(of_state)
    assert min(generator.turns) == 1
    assert len(generator.turns) == sum(len(one.turns) for one in of_state)
    assert (found.tokens, found.ended, found.stopped) == (sum(one.written for one in of_state), "states", 0)
    at_depth = branched(tmp_path, images, agents, depths=[1], n=2)[1]
    assert [len(each) for each in at_depth.groups] == [2]
    assert branched(tmp_path, images, agents, depths=[7])[1].groups == []


def test_branches_end_with_their_budget_of_tokens(tmp_path: Path, images: ImageStore, tokenizer: Any) -> None:
    """Those that were begun are played to their end; the same seed gives the same ones."""
    first = "touch /tmp/begun"
    agents = Agents(Scripted(tokenizer, (first, "touch /tmp/a", "ls"), (first, "touch /tmp/b", "pwd")), tokenizer)
    options: dict[str, Any] = {"depths": [1, 2], "states": 1, "n": 2}
    few, again, all_of = (
        branched(tmp_path, images, agents, tokens=tokens, seconds=600, **options)[1] for tokens in (1, 1, 10_000)
    )
    assert (few.ended, len(few.groups), few.stopped) == ("tokens", 1, 0)
    assert few.tokens > 1
    assert all(one.done and one.grade is not None for branches in few.groups for one in branches)
    assert [one.tokens for one in few.groups[0]] == [one.tokens for one in again.groups[0]]
    assert (all_of.ended, len(all_of.groups)) == ("states", 3)  # after one command, and after each second one
    assert [one.tokens for one in all_of.groups[0]] == [one.tokens for one in few.groups[0]]
    assert 1 < few.tokens < all_of.tokens < 10_000
    assert all_of.tokens == sum(one.written for branches in all_of.groups for one in branches)


def test_branches_end_with_their_budget_of_seconds(tmp_path: Path, images: ImageStore, tokenizer: Any) -> None:
    """Those under way are stopped, their commands included, and what is left of the group is as before."""
    slow = Event()

    class Slow(Scripted):
        async def write(self, past: Sequence[int], seed: int) -> list[int]:
            written = await super().write(past, seed)
            text = "touch /tmp/begun; sleep 1000"
            return self._tokenizer.encode(text, add_special_tokens=False) + written[-1:] if slow.is_set() else written

    agents = Agents(Slow(tokenizer, ("touch /tmp/begun", "ls")), tokenizer, timeout=2000)
    options: dict[str, Any] = {"depths": [1], "n": 2, "seconds": 2.0, "tokens": 100_000}
    group, found, _ = branched(tmp_path, images, agents, then=slow.set, **options)
    assert (found.ended, found.groups, found.stopped) == ("seconds", [], 2)
    assert found.tokens > 0
    assert all(one.grade is not None for one in group)


def test_branches_that_are_reseeded(tmp_path: Path, images: ImageStore, tokenizer: Any) -> None:
    """Siblings that make the same calls see different numbers; in the next epoch they see the same ones again."""
    draws = ("touch /tmp/begun", "echo $RANDOM > /tmp/r; cat /tmp/r")
    agents = Agents(Scripted(tokenizer, draws), tokenizer)
    options: dict[str, Any] = {"depths": [1], "states": 1, "n": 3, "credit": "state"}
    alike, one, other = (branched(tmp_path, images, agents, reseed=reseed, **options) for reseed in (False, True, True))

    def seen(found: Branches) -> list[str]:
        return [branch.calls[0].result.output for branch in found.groups[0]]

    assert len(set(seen(alike[1]))) == 1
    assert len({*seen(alike[1]), *seen(one[1])}) == 4
    assert seen(other[1]) == seen(one[1])
    assert other[2] == 0, "all of it was answered"
    assert all(len(branch.advantages or ()) == len(branch.turns) for branch in one[1].groups[0])


def test_branches_have_the_advantages_of_their_trees(tmp_path: Path, images: ImageStore, tokenizer: Any) -> None:
    (task,) = tasks(n=1, kinds=["count"])
    first, solution = "touch /tmp/begun", " && ".join(task.solutions[0])
    agents = Agents(Scripted(tokenizer, (first, solution), (first, "pwd")), tokenizer, turns=2)
    group, found, _ = branched(tmp_path, images, agents, k=2, states=1, n=4, credit="tree", depths=[1])
    everything = [*group, *found.groups[0]]
    assert [one.tree for one in everything] == [0, 1, 0, 0, 0, 0]
    wanted = tree_advantages([(one.tree, one.trajectory.reward) for one in everything])
    assert [set(one.advantages or ()) for one in everything] == [{advantage} for advantage in wanted]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"states": 0}, "states must be"),
        ({"n": 0}, "n must be"),
        ({"tokens": 0}, "tokens must be"),
        ({"seconds": 0.0}, "seconds must be"),
        ({"seconds": math.inf}, "seconds must be"),
        ({"depths": 2}, "depths must be"),
        ({"depths": [0]}, "each of depths must be"),
        ({"credit": "stat"}, "credit must be one of rollout, state, tree"),
    ],
)
def test_branches_that_make_no_sense(tokenizer: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(tvsnap.UsageError, match=message):
        asyncio.run(Agents(Scripted(tokenizer, ("ls",)), tokenizer).branch(None, [], **options))


def test_there_is_no_other_credit(tokenizer: Any) -> None:
    unknown: Any = "stat"
    with pytest.raises(tvsnap.UsageError, match="credit must be one of rollout, state, tree"):
        asyncio.run(Agents(Scripted(tokenizer, ("ls",)), tokenizer).play(None, [], 2, credit=unknown))


@pytest.mark.parametrize("name", ["loop", "loop-state", "tree-grpo"])
def test_what_is_learned_of_rollouts_and_branches(model: Any, name: str) -> None:
    """Nothing of what was not graded, and of what then is alone only if it was compared with others before."""
    (task,) = tasks(n=1, kinds=["count"])
    given = None if name == "loop" else (0.5,)

    def rollout(reward: float | None) -> Played:
        grade = None if reward is None else tvsnap.Grade(reward)
        return Played(task, 0, [5, 6, 7], [(1, 3)], grade=grade, advantages=given if grade else None)

    group, stopped, failed = [rollout(1.0), rollout(0.0), rollout(None)], [rollout(1.0)], [rollout(None)]
    told = trajectories([group, stopped, failed, [rollout(None), rollout(0.0)]])
    assert [[one.reward for one in each] for each in told] == [[1.0, 0.0], *([] if given is None else [[1.0], [0.0]])]
    update = Learner(model, variant(name)).learn(told)
    assert update.kept == sum(map(len, told))


def test_rollouts_are_the_same_with_the_cache_and_without(tmp_path: Path, images: ImageStore, tokenizer: Any) -> None:
    scripts = (("echo amber > /app/a; ls /app", "cat /app/a"), ("ls /app", "pwd"), ("ls /app", "cat /app/log.txt"))
    found = {}
    for mode, options in (("cache", {}), ("again", {}), ("none", {"use_cache": False})):
        home = tmp_path / ("none" if mode == "none" else "cache")
        found[mode] = play(Agents(Scripted(tokenizer, *scripts), tokenizer), home, images, **options)
    said = {mode: [one.tokens for group in groups for one in group] for mode, groups in found.items()}
    assert said["cache"] == said["again"] == said["none"]
    sources = {
        mode: Counter(call.result.source for group in groups for one in group for call in one.calls)
        for mode, groups in found.items()
    }
    assert set(sources["again"]) == {"hit"}
    assert set(sources["none"]) == {"executed"}
    # A grade that other work on the machine may have had a part in is given anew.
    graded = [one.grade.source for group in found["again"] for one in group if one.grade]
    with tvsnap.Cache(tmp_path / "cache", images=images) as cache:
        held_up = [edge for edge in cache.graph.calls_of({GRADE}) if edge.result.strain]
    assert len(graded) - graded.count("hit") <= len(held_up)


def test_what_a_model_draws_depends_on_its_seed_alone(model: Any, tokenizer: Any) -> None:
    generator = ModelGenerator(model, tokenizer, tokens=24, rows=4)
    prompts = [Agents(generator, tokenizer).prompt(task) for task in tasks(n=9, kinds=["file", "count"])]

    async def write(*numbers: int, more: int = 0) -> list[list[int]]:
        """Asks for some, one shortly after the other, so that batches are of all kinds."""
        async with asyncio.timeout(120):
            asked = []
            for number in numbers:
                asked.append(asyncio.ensure_future(generator.write(prompts[number], number + more)))
                await asyncio.sleep(0.01 * (number % 3))
            return list(await asyncio.gather(*asked))

    once = asyncio.run(write(*range(9)))
    assert [asyncio.run(write(number))[0] for number in range(9)] == once
    assert asyncio.run(write(*reversed(range(9)))) == once[::-1]
    assert asyncio.run(write(*range(9), more=100)) != once
    assert generator.generating_s > 0


def test_the_numbers_behind_a_draw_are_the_same_in_every_batch(model: Any, tokenizer: Any) -> None:
    seen: list[Any] = []
    model.register_forward_hook(lambda *parts: seen.append(parts[2].logits[:, -1].clone()))
    generator = ModelGenerator(model, tokenizer, tokens=6, rows=4)
    prompts = [Agents(generator, tokenizer).prompt(task) for task in tasks(n=20, kinds=["file"])]
    first = next(one for one in prompts if sum(-(-len(one) // 32) == -(-len(other) // 32) for other in prompts) > 3)
    others = [one for one in prompts if -(-len(one) // 32) == -(-len(first) // 32) and one is not first]
    generator.write_all([first], [1])
    alone = [step[0] for step in seen]
    for place in range(4):
        seen.clear()
        batch = [*others[:place], first, *others[place:3]]
        generator.write_all(batch, [1 if one is first else 9 for one in batch])
        for one, step in zip(alone, seen, strict=False):
            assert torch.equal(one, step[place])


def test_a_model_plays_and_learns(tmp_path: Path, images: ImageStore, model: Any, tokenizer: Any) -> None:
    agents = Agents(ModelGenerator(model, tokenizer, tokens=8), tokenizer, turns=2)
    groups = play(agents, tmp_path, images, 3)
    update = Learner(model, variant("loop", least_advantage=0.0)).learn(
        [[one.trajectory for one in group] for group in groups]
    )
    assert update.kept == 6
    assert math.isfinite(update.loss)


def test_what_fails_to_be_generated_fails_for_those_that_wait(
    model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def generate(**_: Any) -> Any:
        raise RuntimeError("no room")

    monkeypatch.setattr(model, "generate", generate)

    async def go() -> list[Any]:
        generator = ModelGenerator(model, tokenizer)
        return await asyncio.gather(*(generator.write([1], seed) for seed in range(2)), return_exceptions=True)

    assert list(map(str, asyncio.run(go()))) == ["no room"] * 2


def test_one_writes_while_the_tool_of_another_runs(tmp_path: Path, images: ImageStore, tokenizer: Any) -> None:
    written: list[tuple[float, str]] = []

    class Noted(Scripted):
        async def write(self, past: Sequence[int], seed: int) -> list[int]:
            tokens = await super().write(past, seed)
            written.append((time.monotonic(), self._tokenizer.decode(tokens)))
            return tokens

    scripts = (("sleep 3; echo slow",), ("echo quick", "pwd"))
    groups = play(Agents(Noted(tokenizer, *scripts), tokenizer), tmp_path, images, 6, use_cache=False)
    commands = [[call.command for call in one.calls] for group in groups for one in group]
    assert set(map(tuple, commands)) == set(scripts)
    ended = min(at for (at, text), before in zip(written[1:], written, strict=False) if text == "DONE|" and before)
    slow = min(at for at, text in written if text.startswith("sleep"))
    assert ended < slow + 3  # a quick one is done before a slow call is over


@pytest.mark.parametrize("grade", [True, False])
def test_stragglers_are_cancelled(tmp_path: Path, images: ImageStore, tokenizer: Any, grade: bool) -> None:
    (task,) = tasks(n=1, kinds=["file"])
    scripts = ((*task.solutions[0], "sleep 300"), ("pwd",))
    agents = Agents(Scripted(tokenizer, *scripts), tokenizer, timeout=400.0)

    async def go() -> list[Played]:
        async with tvsnap.AsyncCache(tmp_path, images=images, policy="default") as cache:
            (group,) = await agents.play(cache, [task], 6, "2", Stragglers(0.3, 3.0, grade))
            return group

    group = asyncio.run(asyncio.wait_for(go(), 120))
    late = [one for one in group if one.cancelled]
    on_time = [one for one in group if not one.cancelled]
    assert {call.command for one in on_time for call in one.calls} == {"pwd"}
    assert {one.trajectory.reward for one in on_time} == {0.0}
    if grade:
        assert len(group) == 6
        assert {one.trajectory.reward for one in late} == {1.0}
        assert {call.command for one in late for call in one.calls} == {task.solutions[0][0]}
    else:
        assert not late
        assert 2 <= len(group) < 6


def test_a_straggler_that_had_not_begun_has_no_reward(tmp_path: Path, images: ImageStore, tokenizer: Any) -> None:
    """It is left out of its group, and of what its task's states are worth."""
    (task,) = tasks(n=1, kinds=["count"])
    agents = Agents(Scripted(tokenizer, ("pwd",)), tokenizer, at_once=1)

    async def go() -> tuple[list[Played], int]:
        async with tvsnap.AsyncCache(tmp_path, images=images) as cache:
            (group,) = await agents.play(cache, [task], 6, stragglers=Stragglers(1 / 6, 0.0))
            return group, len((await cache.values(task.name)).rollouts)

    group, rewarded = asyncio.run(asyncio.wait_for(go(), 120))
    assert 1 <= len(group) < 6
    assert rewarded == len(group)


@pytest.mark.parametrize("options", [{"share": 0.0}, {"share": 1.5}, {"seconds": -1.0}, {"seconds": math.inf}])
def test_stragglers_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(tvsnap.UsageError):
        Stragglers(**options)


def test_draws_are_as_frequent_as_the_model_says(model: Any, tokenizer: Any) -> None:
    generator = ModelGenerator(model, tokenizer, tokens=1, rows=100)
    past = Agents(generator, tokenizer).prompt(tasks(n=1)[0])
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([past])).logits[0, -1].softmax(-1)
    drawn = Counter(
        token
        for first in range(0, 2000, 100)
        for (token,) in generator.write_all([past] * 100, range(first, first + 100))
    )
    distance = sum(abs(drawn[token] / 2000 - float(chance)) for token, chance in enumerate(expected)) / 2
    assert distance < 0.12  # of 2000 draws from 128 tokens, about 0.1 is left to chance


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("ls -l", "ls -l"),
        ("```bash\nls\npwd\n```\nThat is all.", "ls\npwd"),
        ("```\nls\n```", "ls"),
        ("`ls`", "ls"),
        ("DONE", None),
        (" \n", None),
        ("```bash\n```", None),
        ("DONE, all of it", None),
        ("DONE_AT=3; echo $DONE_AT", "DONE_AT=3; echo $DONE_AT"),
        ("echo `date`", "echo `date`"),
        ("`pwd`/run `date`", "`pwd`/run `date`"),
        ("```ls```", "ls"),
        ("ls\n```\nThat is all.", "ls"),
        ("cat > f <<E\n```\nx\n```\nE", "cat > f <<E\n```\nx\n```\nE"),
    ],
)
def test_commands(text: str, command: str | None) -> None:
    assert command_in(text) == command


def test_what_a_command_prints_ends_no_turn(tmp_path: Path, images: ImageStore, tokenizer: Any) -> None:
    """What the tokenizer has a token of its own for is text there."""
    tokenizer.add_special_tokens({"additional_special_tokens": ["@END@"]})
    special = tokenizer.convert_tokens_to_ids("@END@")
    assert tokenizer.encode("a@END@", add_special_tokens=False)[-1] == special
    agents = Agents(Scripted(tokenizer, ("printf 'a\\100END\\100b'",)), tokenizer)
    (one, *_), *_ = play(agents, tmp_path, images, 2)
    assert one.calls[0].shown == "a@END@b"
    assert special not in one.tokens
    assert "a@END@b" in tokenizer.decode(one.tokens)


@pytest.mark.parametrize("options", [{"turns": 0}, {"turns": -1}, {"turns": 1.5}, {"shown": -1}])
def test_numbers_that_make_no_sense(tokenizer: Any, options: dict[str, Any]) -> None:
    with pytest.raises(tvsnap.UsageError, match=next(iter(options))):
        Agents(Scripted(tokenizer), tokenizer, **options)


def test_a_verifier_that_fails_gives_no_reward(tmp_path: Path, images: ImageStore, tokenizer: Any) -> None:
    (task,) = tasks(n=1, kinds=["file"])
    broken = replace(task, verifier=tvsnap.Verifier("exit 3"))
    agents = Agents(Scripted(tokenizer, ("pwd",)), tokenizer)

    async def go() -> Played:
        async with tvsnap.AsyncCache(tmp_path, images=images, use_cache=False) as cache:
            ((one,),) = await agents.play(cache, [broken], 1)
            return one

    one = asyncio.run(go())
    assert one.grade is None
    with pytest.raises(tvsnap.UsageError, match="has no grade"):
        _ = one.trajectory
