"""Rollouts of a language model: it writes a command, the command is run, its output is appended, until it is done.

Each rollout goes on by itself: while the tool calls of some are made, what others write is generated, together where
several wait for it. What a rollout draws depends on what was said in it and on its seed, so the same seed gives the
same rollouts, token by token, where the tools return the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import re
import time
from collections import Counter
from collections.abc import Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tvsnap import Grade, InfrastructureError, ToolResult, UsageError
from tvsnap.errors import GradingFailed, StateLost
from tvsnap.plugins.training.generation import Generator, check_least
from tvsnap.plugins.training.loop import Credit, Trajectory, tree_advantages
from tvsnap.plugins.training.tasks import Task
from tvsnap.types import TaskValues

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


@dataclass(frozen=True)
class Call:
    """A tool call of a rollout.

    Attributes:
        command: what was run.
        result: what it returned.
        shown: the part of it that the model was shown.
        seconds: that the rollout waited for it.
    """

    command: str
    result: ToolResult
    shown: str
    seconds: float


@dataclass
class Played:
    """A rollout.

    Attributes:
        task: its task.
        number: which of the task's rollouts it is, from 0 on.
        tokens: all that was said, as tokens.
        turns: where the model wrote, see `Trajectory`.
        calls: the commands that were run for the model, the task's own (`Task.setup`) not among them.
        grade: what its last state was worth, and 0 if it has failed; None where the verifier failed.
        graded_s: seconds that it waited for that.
        prepared_s: seconds that it waited for the task to be set up.
        done: whether it ended by itself.
        failed: whether it has used up its commands and not ended then. Its state is not graded.
        cancelled: whether it was cancelled as a straggler, see `Stragglers`.
        rollout: its id in the graph; None where nothing is recorded.
        advantages: of its turns, where credit is by state.
        before: how many commands led to the state in which it began: 0, but for branches (`Agents.branch`). Their turns
            are not among `turns`, as another rollout took them.
        setup: how many of its calls set the sandbox up before its first turn.
        tree: the number of the rollout of the group to which it goes back, by branches: that rollout's own number.
    """

    task: Task
    number: int
    tokens: list[int]
    turns: list[tuple[int, int]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    grade: Grade | None = None
    graded_s: float = 0.0
    prepared_s: float = 0.0
    done: bool = False
    failed: bool = False
    cancelled: bool = False
    rollout: str | None = None
    advantages: tuple[float, ...] | None = None
    before: int = 0
    setup: int = 0
    tree: int = 0

    @property
    def written(self) -> int:
        """The number of tokens that the model wrote in it."""
        return sum(end - first for first, end in self.turns)

    @property
    def trajectory(self) -> Trajectory:
        """What the learner needs of it; raises UsageError where there is no grade, and so nothing to learn."""
        if self.grade is None:
            raise UsageError(f"rollout {self.number} of task {self.task.name} has no grade: leave it out of its group")
        return Trajectory(self.tokens, self.turns, self.grade.reward, self.advantages)


@dataclass(frozen=True)
class Stragglers:
    """When the rollouts of a group that are late are cancelled, and what becomes of them.

    Attributes:
        share: of the group's rollouts that are to have ended, from 0 to 1; then the others' time begins.
        seconds: that the others have from then on.
        grade: whether those that were cancelled are graded as they stand; otherwise they are left out of their group.
            Those that had written nothing are left out in any case, and have no reward.
    """

    share: float = 0.75
    seconds: float = 60.0
    grade: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"share must be larger than 0 and at most 1, not {self.share!r}")
        if not 0 <= self.seconds < math.inf:
            raise UsageError(f"seconds must be a finite number from 0 on, not {self.seconds!r}")


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
        _check_credit(credit)
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
            await _give(credit, cache, group)
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
        _check_credit(credit)
        if not isinstance(depths, Collection):
            raise UsageError(f"depths must be a list of whole numbers, not {depths!r}")
        for depth in depths:
            check_least("each of depths", depth)
        check_least("states", states)
        check_least("n", n)
        if tokens is not None:
            check_least("tokens", tokens)
        if seconds is not None and not 0 < seconds < math.inf:
            raise UsageError(f"seconds must be a finite number larger than 0, not {seconds!r}")
        began, result, tried = time.monotonic(), Branches(), set[str]()
        everything = [one for one in group if one.grade is not None]
        until = math.inf if seconds is None else began + seconds

        def used_up() -> Literal["tokens", "seconds"] | None:
            if time.monotonic() >= until:
                return "seconds"
            return "tokens" if tokens is not None and result.tokens >= tokens else None

        while everything:
            values, groups = await _values(cache, everything), list[list[Played]]()
            places = [place for place in _places(everything, values, depths) if place[0] not in tried]
            async with contextlib.AsyncExitStack() as stack:
                running = list[Coroutine[Any, Any, None]]()
                for state, one, turn in places:
                    if len(groups) == states or used_up() == "seconds":
                        break
                    tried.add(state)
                    numbers = range(len(tried) * n - n, len(tried) * n)
                    seeds = [(seed, one.task.name, one.task.instruction, "branch", number) for number in numbers]
                    with contextlib.suppress(StateLost):
                        branches, parts = await self._begin_branches(
                            cache, stack, (state, one, turn), seeds, reseed, epoch
                        )
                        groups.append(branches)
                        running += parts
                in_time = await _until(running, until)
            of_round = [one for branches in groups for one in branches]
            result.tokens += sum(one.written for one in of_round)
            for one, ended in zip(of_round, in_time, strict=True):
                one.cancelled = not ended
            result.stopped += sum(one.cancelled for one in of_round)
            in_full = [[one for one in branches if not one.cancelled] for branches in groups]
            result.groups += [branches for branches in in_full if branches]
            everything += [one for branches in in_full for one in branches if one.grade is not None]
            result.ended = used_up() or "states"
            if used_up() or not groups or (tokens is None and seconds is None):
                break
        result.seconds = time.monotonic() - began
        await _give(credit, cache, [*group, *(one for branches in result.groups for one in branches)])
        return result

    async def _begin_branches(
        self,
        cache: Any,
        stack: contextlib.AsyncExitStack,
        place: tuple[str, Played, int],
        seeds: Sequence[Sequence[object]],
        reseed: bool,
        epoch: int | None,
    ) -> tuple[list[Played], list[Coroutine[Any, Any, None]]]:
        """Begins branches in a state, one for each seed; returns them, and what plays them."""
        state, one, turn = place
        past, options = one.tokens[: one.turns[turn][0]], {"task": one.task.name, "epoch": epoch, "reseed": reseed}
        rollouts = await stack.enter_async_context(cache.fork(state, len(seeds), as_rollouts=True, **options))
        branches = [
            Played(one.task, n, list(past), rollout=each.id, before=one.before + turn, setup=int(reseed), tree=one.tree)
            for n, each in enumerate(rollouts)
        ]
        return branches, list(map(self._go_on, branches, rollouts, seeds))

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
                for number in await _late(running, stragglers):
                    ones[number].cancelled = True
                await _end([each for one, each in zip(ones, running, strict=True) if one.cancelled])
            await asyncio.gather(*(each for one, each in zip(ones, running, strict=True) if not one.cancelled))
        finally:
            await _end(running)
        for one, rollout in zip(ones, rollouts, strict=True):
            one.rollout = rollout.id
        if stragglers is not None and stragglers.grade:
            begun = [one for one in ones if one.turns]  # of one that wrote nothing, there is nothing to learn
            late = [(one, rollout) for one, rollout in zip(ones, rollouts, strict=True) if one.cancelled and one.turns]
            await together([self._grade(*pair) for pair in late])
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


def trajectories(groups: Iterable[Sequence[Played]]) -> list[list[Trajectory]]:
    """Returns what the learner learns from in groups of rollouts, those of `Agents.play` and `Agents.branch`.

    Rollouts without a grade are left out. So is one that then is alone in its group, as there is nothing to compare it
    with, unless it has advantages by state or tree.

    Args:
        groups: the rollouts, those of one task, or the branches of one state, together.
    """
    graded = [[one.trajectory for one in group if one.grade is not None] for group in groups]
    return [group for group in graded if len(group) > 1 or (group and group[0].advantages is not None)]


def _check_credit(credit: Credit) -> None:
    """Raises UsageError unless there is such a credit."""
    if credit not in get_args(Credit):
        raise UsageError(f"credit must be one of {', '.join(get_args(Credit))}, not {credit!r}")


async def _give(credit: Credit, cache: Any, group: Sequence[Played]) -> None:
    """Gives the turns of a group's rollouts, branches included, their advantages, if these are not the rollouts'."""
    graded = [one for one in group if one.grade is not None]
    if credit == "state" and graded:
        values = await _values(cache, graded)
        for one in graded:
            one.advantages = values.of(one.rollout or "").by_turn(len(one.turns), setup=one.setup, ended=one.done)
    elif credit == "tree":
        rewards = [(one.tree, one.trajectory.reward) for one in graded]
        for one, advantage in zip(graded, tree_advantages(rewards), strict=True):
            one.advantages = (advantage,) * len(one.turns)


async def _values(cache: Any, graded: Sequence[Played]) -> TaskValues:
    """Returns what the states were worth in which rollouts of a task stood."""
    if any(one.rollout is None for one in graded):
        raise UsageError("credit by state needs a cache that records what rollouts do, not use_cache=False")
    values: TaskValues = await cache.values(graded[0].task.name, rollouts=[one.rollout for one in graded])
    return values


def _places(graded: Sequence[Played], values: TaskValues, depths: Collection[int]) -> list[tuple[str, Played, int]]:
    """Returns states to branch from, the best first, each with a rollout that stood there, and its turn there.

    The first turn is no such place: to begin there is to begin anew.
    """
    places: dict[str, tuple[str, Played, int]] = {}
    for one in graded:
        credit = values.of(one.rollout or "")
        for place, state in zip(credit.places, credit.states, strict=True):
            turn = place - one.setup - 1
            if 0 < turn < len(one.turns) and (not depths or one.before + turn in depths):
                places.setdefault(state, (state, one, turn))
    spread = {value.state: value.variance or 0.0 for value in values.states}
    ranked = sorted(places.values(), key=lambda each: -spread[each[0]])  # of equal ones, in the order of the rollouts
    return [each for each in ranked if depths or spread[each[0]] > 0]


async def together(parts: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Returns the results of all; if one fails or this is cancelled, the others are cancelled and waited for.

    Args:
        parts: coroutines.
    """
    running = [asyncio.ensure_future(part) for part in parts]
    try:
        return list(await asyncio.gather(*running))
    finally:
        await _end(running)


async def _until(parts: Sequence[Coroutine[Any, Any, None]], until: float) -> list[bool]:
    """Waits for all, but not beyond a moment, by time.monotonic(): then the others are cancelled and waited for.

    Returns whether each was in time; raises what one of them raised.
    """
    running = [asyncio.ensure_future(part) for part in parts]
    if not running:
        return []
    left = None if until == math.inf else max(0.0, until - time.monotonic())
    try:
        over, _ = await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
        for each in over:
            each.result()
        return [each in over for each in running]
    finally:
        await _end(running)


async def _end(running: Sequence[asyncio.Future[Any]]) -> None:
    """Cancels what is not over, and waits for it."""
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def _late(running: Sequence[asyncio.Future[Any]], stragglers: Stragglers) -> list[int]:
    """Returns the numbers of those that are not over, once enough of them are and the others' time is up."""
    open_ = set(running)
    while open_ and len(running) - len(open_) < math.ceil(stragglers.share * len(running)):
        over, open_ = await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
        for each in over:
            each.result()  # raises what it raised
    if open_:
        _, open_ = await asyncio.wait(open_, timeout=stragglers.seconds)
    return [number for number, each in enumerate(running) if each in open_]


def _seed(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")
