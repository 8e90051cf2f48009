"""Rollouts of a language model: it writes a command, the command is run, its output is appended, until it is done.

Each rollout goes on by itself: while the tool calls of some are made, what others write is generated, together where
several wait for it. What a rollout draws depends on what was said in it and on its seed, so the same seed gives the
same rollouts, token by token, where the tools return the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from tvsnap import Grade, InfrastructureError
from tvsnap.errors import GradingFailed
from tvsnap.plugins.training.branching import Branches, Branching, BranchRules
from tvsnap.plugins.training.credit import check_credit, give
from tvsnap.plugins.training.generation import Generator, check_least
from tvsnap.plugins.training.loop import Credit, Trajectory
from tvsnap.plugins.training.played import Call, Played
from tvsnap.plugins.training.tasks import Task
from tvsnap.plugins.training.waiting import Stragglers, end, late, together

DONE = "DONE"
_SYSTEMS = {
    "bash": "You work at a shell. Answer with one bash command, and nothing else.",
    "sql": "You work at a database. Answer with SQL, and nothing else.",
    "python": "You work at a Python interpreter. Answer with Python code, and nothing else.",
}
"""What the model is told first, by the task's tool."""
_SAYS_DONE = re.compile(rf"{DONE}\b")
_MARK, _OUTPUT = "@@@", "@@output@@"
_QUOTED = re.compile("(`+)([^`]+)\\1")
"""A whole line between back quotes; those within a command are its own."""


class Agents:
    """Has a model do tasks.

    Attributes:
        generator: what writes.
        tokenizer: the model's tokenizer, with a chat template.
        at_once: how many rollouts are played at a time.
    """

    def __init__(
        self,
        generator: Generator,
        tokenizer: Any,
        *,
        turns: int = 8,
        shown: int = 400,
        timeout: float = 10.0,
        at_once: int = 1000,
    ) -> None:
        """
        Args:
            generator: what writes the turns.
            tokenizer: the model's tokenizer, with a chat template.
            turns: the most commands of a rollout. If it does not end in the turn after the last one, it has failed, and
                its reward is 0, whatever its state (arXiv 2502.01600).
            shown: the most characters of an output that the model is shown.
            timeout: seconds that a command may take.
            at_once: how many rollouts are played at a time. Their calls share the processors, and where these are few,
                calls of many rollouts would come to their timeouts.

        Raises:
            UsageError: `turns`, `shown` or `at_once` is less than 1, or no whole number.
        """
        check_least("turns", turns)
        check_least("shown", shown)
        check_least("at_once", at_once)
        self.generator = generator
        self.tokenizer = tokenizer
        self._turns, self._shown, self._timeout, self.at_once = turns, shown, timeout, at_once
        self._end = int(tokenizer.eos_token_id)

    async def play(
        self,
        cache: Any,
        tasks: Sequence[Task],
        k: int,
        seed: str = "0",
        stragglers: Stragglers | None = None,
        *,
        epoch: int | None = None,
        credit: Credit = "rollout",
    ) -> list[list[Played]]:
        """Plays tasks, each several times.

        Args:
            cache: a `tvsnap.AsyncCache`, or what `tvsnap.aio.connect` returns.
            tasks: the tasks.
            k: how many rollouts there are of each.
            seed: another text has the model draw other tokens.
            stragglers: when late rollouts of a group are cancelled; None for never.
            epoch: of the training run, for people; see `tvsnap.Cache.rollout`.
            credit: what the learner wants, see `tvsnap.training.loop.Settings`. By state, each turn has its advantage
                beside the others of the group; this needs a cache that records.

        Returns:
            The rollouts, those of one task together.

        Raises:
            UsageError: there is no such credit, or credit by state is wanted of rollouts that nothing is recorded of.
        """
        check_credit(credit)
        async with contextlib.AsyncExitStack() as stack:
            groups, listed = [], Counter[tuple[str, str]]()
            for task in tasks:
                group = cache.group(task.image, task.name, k, epoch=epoch)
                rollouts = [await stack.enter_async_context(each) for each in group]
                # Tasks of different seeds may have one name; and one may be listed twice.
                text = (task.name, task.instruction)
                of_group = (seed, *text, listed[text])
                listed[text] += 1
                setup = len(task.preparation())
                ones = [Played(task, n, self.prompt(task), setup=setup, tree=n) for n in range(k)]
                groups.append((ones, rollouts, of_group))
            room = asyncio.Semaphore(self.at_once)
            played = await together([self._play_group(*group, stragglers, room) for group in groups])
        for group in played:
            await give(credit, cache, group)
        return played

    async def branch(
        self,
        cache: Any,
        group: Sequence[Played],
        seed: str = "0",
        *,
        states: int = 2,
        n: int = 2,
        depths: Collection[int] = (),
        tokens: int | None = None,
        seconds: float | None = None,
        reseed: bool = False,
        epoch: int | None = None,
        credit: Credit = "rollout",
    ) -> Branches:
        """Goes on from states in which rollouts of a group stood, several times from each, with what was said there.

        What led to a state is neither executed nor said again. Each branch is a rollout of its own, and is graded.

        With a budget, states of branches follow those of the group, until the budget is used up or no state is left.
        Branches that were begun are then played to their end if it was a budget of tokens, so that a bit more may be
        spent, and the same seed gives the same branches; if it was one of seconds, they are stopped and left out.

        Args:
            cache: the one in which the group was played.
            group: the rollouts, of one task.
            seed: another text has the model draw other tokens.
            states: from how many states branches begin, at most: in all, and with a budget at a time.
            n: how many begin in each.
            depths: only in states after so many commands, such as `[1, 2]`; by default in those in which several
                rollouts stood whose rewards differ, the most different ones first.
            tokens: that the model may write; None for any number.
            seconds: that may pass; None for any number.
            reseed: give the branches of a state different random numbers, see `tvsnap.Rollout.fork`.
            epoch: of the training run, for people.
            credit: as in `play`. By state or tree, the rollouts of the group have other advantages afterwards, as there
                is more to compare them with.

        Returns:
            The branches; states that nothing leads to any more are left out.

        Raises:
            UsageError: `states`, `n`, `tokens` or one of `depths` is less than 1, `seconds` is not larger than 0, there
                is no such credit, nothing is recorded of the rollouts, or a branch cannot be reseeded.
        """
        rules = BranchRules(states, n, depths, tokens, seconds, reseed, epoch, credit)
        return await Branching(cache, seed, rules, self._go_on).grow(group)

    async def _play_group(
        self,
        ones: Sequence[Played],
        rollouts: Sequence[Any],
        seed: Sequence[object],
        stragglers: Stragglers | None,
        room: asyncio.Semaphore,
    ) -> list[Played]:
        """Plays the rollouts of one task; returns those that are not left out."""
        running = [
            asyncio.ensure_future(self._play(one, rollout, (*seed, number), room))
            for number, (one, rollout) in enumerate(zip(ones, rollouts, strict=True))
        ]
        try:
            if stragglers is not None:
                for number in await late(running, stragglers):
                    ones[number].cancelled = True
                await end([each for one, each in zip(ones, running, strict=True) if one.cancelled])
            await asyncio.gather(*(each for one, each in zip(ones, running, strict=True) if not one.cancelled))
        finally:
            await end(running)
        for one, rollout in zip(ones, rollouts, strict=True):
            one.rollout = rollout.id
        if stragglers is not None and stragglers.grade:
            begun = [one for one in ones if one.turns]  # of one that wrote nothing, there is nothing to learn
            pairs = zip(ones, rollouts, strict=True)
            await together([self._grade(one, rollout) for one, rollout in pairs if one.cancelled and one.turns])
            return begun
        return [one for one in ones if not one.cancelled]

    async def _play(self, one: Played, rollout: Any, seed: Sequence[object], room: asyncio.Semaphore) -> None:
        """Plays one rollout from its beginning to its grade, as soon as there is room for it."""
        async with room:
            began = time.perf_counter()
            for tool, arguments in one.task.preparation():
                result = await rollout.call(tool, arguments, 60.0)
                if result.timed_out or result.exit_code:
                    raise InfrastructureError(f"task {one.task.name} could not be set up: {result.output[-400:]}")
            one.prepared_s = time.perf_counter() - began
            await self._go_on(one, rollout, seed)

    async def _go_on(self, one: Played, rollout: Any, seed: Sequence[object]) -> None:
        """Plays one rollout from where it stands to its grade."""
        while not (one.done or one.failed):
            tokens = await self.generator.write(list(one.tokens), _seed(*seed, len(one.turns)))
            one.turns.append((len(one.tokens), len(one.tokens) + len(tokens)))
            one.tokens.extend(tokens)
            await self._act(one, rollout)
        await self._grade(one, rollout)

    def prompt(self, task: Task) -> list[int]:
        """Returns what a rollout begins with, as tokens.

        Args:
            task: the task.
        """
        messages = [
            {"role": "system", "content": f"{_SYSTEMS[task.tool]} When the task is done, answer {DONE}."},
            {"role": "user", "content": task.instruction},
        ]
        return self._encode(self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))

    def solved(self, task: Task, way: int = 0, outputs: Sequence[str] = ()) -> Trajectory:
        """Returns what a rollout would say that follows one of the task's solutions, for a warm start.

        Args:
            task: the task.
            way: which solution.
            outputs: what its commands return; empty where that is not given.
        """
        one = Played(task, 0, self.prompt(task))
        texts = [*task.solutions[way], DONE]
        for number, text in enumerate(texts):
            tokens = [*self._encode(text), self._end]
            one.turns.append((len(one.tokens), len(one.tokens) + len(tokens)))
            one.tokens.extend(tokens)
            if text != DONE:
                self._append(one, outputs[number] if number < len(outputs) else "")
        return Trajectory(one.tokens, one.turns, 1.0)

    async def _act(self, one: Played, rollout: Any) -> None:
        """Runs the command that the model has just written, if it has one left."""
        first, end = one.turns[-1]
        command = command_in(self.tokenizer.decode(one.tokens[first:end], skip_special_tokens=True))
        if command is None:
            one.done = True
            return
        if one.before + len(one.calls) == self._turns:
            one.failed = True
            return
        began = time.perf_counter()
        result = await rollout.call(one.task.tool, one.task.arguments(command), self._timeout)
        seconds = time.perf_counter() - began
        shown = result.output[: self._shown]
        one.calls.append(Call(command, result, shown, seconds))
        self._append(one, shown)

    def _append(self, one: Played, output: str) -> None:
        """Appends a tool's output, in the form that the chat template gives to what the user says."""
        messages = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": _MARK},
            {"role": "user", "content": f"Output:\n{_OUTPUT}"},
        ]
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        ended = one.tokens[-1] == self._end
        before, _, after = text.partition(_MARK)[2].partition(_OUTPUT)
        one.tokens.extend(self._encode(before.removeprefix(self.tokenizer.eos_token) if ended else before))
        # What a command prints is text, also where it looks like what ends a turn.
        one.tokens.extend(self.tokenizer.encode(output, add_special_tokens=False, split_special_tokens=True))
        one.tokens.extend(self._encode(after))

    async def _grade(self, one: Played, rollout: Any) -> None:
        if one.failed:
            one.grade = Grade(0.0)
            await rollout.record(0.0)
            return
        began = time.perf_counter()
        with contextlib.suppress(GradingFailed):
            one.grade = await rollout.grade(one.task.verifier)
        one.graded_s = time.perf_counter() - began

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))


def command_in(text: str) -> str | None:
    """Returns the command in what a model wrote, without the fence around it; None if it is done, or wrote none.

    Args:
        text: what it wrote.
    """
    text = text.strip()
    if "\n" not in text:
        quoted = _QUOTED.fullmatch(text)
        text = text if quoted is None else quoted[2]
    elif text.startswith("```"):
        text = text[text.index("\n") :].partition("\n```")[0]
    elif text.count("\n```") % 2:  # in pairs, they are part of a text that the command writes
        text = text.partition("\n```")[0]
    text = text.strip()
    return None if not text or _SAYS_DONE.match(text) or "\0" in text else text


def _seed(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")
