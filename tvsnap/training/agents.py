"""Rollouts of a language model: it writes a command, the command is run, its output is appended, until it is done.

All rollouts go on in rounds: in each, what they write is generated together, and then their commands are run side by
side. So what is computed together depends on nothing but what was said before: the same seed gives the same rollouts,
token by token, where the tools return the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import LogitsProcessor

from tvsnap import Grade, GradingFailed, ToolResult
from tvsnap.training.loop import Trajectory
from tvsnap.training.tasks import Task

DONE = "DONE"
_SYSTEM = f"You work at a shell. Answer with one bash command, and nothing else. When the task is done, answer {DONE}."
_MARK = "@@@"


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
        tokens: all that was said, as tokens.
        turns: where the model wrote, see `Trajectory`.
        calls: the commands that were run for the model, the task's own (`Task.setup`) not among them.
        grade: what its last state was worth; None where the verifier failed.
        graded_s: seconds that it waited for that.
    """

    task: Task
    tokens: list[int]
    turns: list[tuple[int, int]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    grade: Grade | None = None
    graded_s: float = 0.0
    done: bool = False

    @property
    def trajectory(self) -> Trajectory:
        """What the learner needs of it; without a grade, the reward is 0."""
        return Trajectory(self.tokens, self.turns, 0.0 if self.grade is None else self.grade.reward)


class Agents:
    """Has a model do tasks.

    Attributes:
        model: the model.
        tokenizer: its tokenizer, with a chat template.
        generating_s: seconds that the model wrote for, so far.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        turns: int = 8,
        tokens: int = 128,
        shown: int = 400,
        timeout: float = 10.0,
        rows: int = 16,
    ) -> None:
        """
        Args:
            model: a causal language model of transformers.
            tokenizer: its tokenizer, with a chat template.
            turns: the most commands of a rollout.
            tokens: the most tokens of a turn.
            shown: the most characters of an output that the model is shown.
            timeout: seconds that a command may take.
            rows: how many rollouts are generated at a time.
        """
        self.model = model
        self.tokenizer = tokenizer
        self.generating_s = 0.0
        self._turns, self._tokens, self._shown = turns, tokens, shown
        self._timeout, self._rows = timeout, rows
        self._end = int(tokenizer.eos_token_id)

    async def play(self, cache: Any, tasks: Sequence[Task], k: int, seed: str = "0") -> list[list[Played]]:
        """Plays tasks, each several times.

        Args:
            cache: a `tvsnap.AsyncCache`, or what `tvsnap.aio.connect` returns.
            tasks: the tasks.
            k: how many rollouts there are of each.
            seed: another text has the model draw other tokens.

        Returns:
            The rollouts, those of one task together.
        """
        async with contextlib.AsyncExitStack() as stack:
            played: list[Played] = []
            rollouts: list[Any] = []
            for task in tasks:
                for rollout in cache.group(task.image, task.name, k):
                    rollouts.append(await stack.enter_async_context(rollout))
                    played.append(Played(task, self.prompt(task)))
            await asyncio.gather(*(self._set_up(*pair) for pair in zip(played, rollouts, strict=True)))
            for turn in range(self._turns):
                live = [number for number, one in enumerate(played) if not one.done]
                for first in range(0, len(live), self._rows):
                    part = live[first : first + self._rows]
                    seeds = [_seed(seed, played[number].task.name, number % k, turn) for number in part]
                    began = time.perf_counter()
                    past = [played[number].tokens for number in part]
                    written = await asyncio.to_thread(self.write, past, seeds)
                    self.generating_s += time.perf_counter() - began
                    for number, tokens in zip(part, written, strict=True):
                        one = played[number]
                        one.turns.append((len(one.tokens), len(one.tokens) + len(tokens)))
                        one.tokens.extend(tokens)
                await asyncio.gather(*(self._act(played[number], rollouts[number]) for number in live))
            await asyncio.gather(*(self._grade(*pair) for pair in zip(played, rollouts, strict=True)))
        return [played[first : first + k] for first in range(0, len(played), k)]

    def prompt(self, task: Task) -> list[int]:
        """Returns what a rollout begins with, as tokens.

        Args:
            task: the task.
        """
        messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": task.instruction}]
        return self._encode(self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))

    def solved(self, task: Task, way: int = 0, outputs: Sequence[str] = ()) -> Trajectory:
        """Returns what a rollout would say that follows one of the task's solutions, for a warm start.

        Args:
            task: the task.
            way: which solution.
            outputs: what its commands return; empty where that is not given.
        """
        one = Played(task, self.prompt(task))
        said = [*task.solutions[way], DONE]
        for number, text in enumerate(said):
            tokens = [*self._encode(text), self._end]
            one.turns.append((len(one.tokens), len(one.tokens) + len(tokens)))
            one.tokens.extend(tokens)
            if text != DONE:
                self._append(one, outputs[number] if number < len(outputs) else "")
        return Trajectory(one.tokens, one.turns, 1.0)

    def write(self, past: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[list[int]]:
        """Returns what the model writes in one turn of several rollouts, drawn at temperature 1.

        Args:
            past: what was said before, as tokens.
            seeds: of chance, one a rollout, so that it is the same whatever else is generated.
        """
        device = next(self.model.parameters()).device
        longest = max(map(len, past))
        ids = torch.full((len(past), longest), self._end, dtype=torch.long, device=device)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(past):
            ids[row, longest - len(tokens) :] = torch.tensor(list(tokens), device=device)
            mask[row, longest - len(tokens) :] = 1
        with torch.no_grad():
            made = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,  # the largest of what chance is added to is a draw, see _Drawn
                max_new_tokens=self._tokens,
                eos_token_id=self._end,
                pad_token_id=self._end,
                logits_processor=[_Drawn(seeds)],
            )
        return [self._until_end(row) for row in made[:, longest:].tolist()]

    def _until_end(self, tokens: list[int]) -> list[int]:
        return tokens[: tokens.index(self._end) + 1] if self._end in tokens else tokens

    async def _set_up(self, one: Played, rollout: Any) -> None:
        for command in one.task.setup:
            await rollout.call("bash", {"command": command}, 60.0)

    async def _act(self, one: Played, rollout: Any) -> None:
        """Runs the command that the model has just written."""
        first, end = one.turns[-1]
        command = command_in(self.tokenizer.decode(one.tokens[first:end], skip_special_tokens=True))
        if command is None:
            one.done = True
            return
        began = time.perf_counter()
        result = await rollout.call("bash", {"command": command}, self._timeout)
        seconds = time.perf_counter() - began
        shown = result.output[: self._shown]
        one.calls.append(Call(command, result, shown, seconds))
        if len(one.turns) == self._turns:
            one.done = True
        else:
            self._append(one, shown)

    def _append(self, one: Played, output: str) -> None:
        """Appends a tool's output, in the form that the chat template gives to what the user says."""
        messages = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": _MARK},
            {"role": "user", "content": f"Output:\n{output}"},
        ]
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        ended = one.tokens[-1] == self._end
        after = text.partition(_MARK)[2]
        one.tokens.extend(self._encode(after.removeprefix(self.tokenizer.eos_token) if ended else after))

    async def _grade(self, one: Played, rollout: Any) -> None:
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
    if text.startswith("```"):
        text = text.partition("\n")[2]
    text = text.partition("\n```")[0].strip().strip("`")
    return None if not text or text.startswith(DONE) or "\0" in text else text


class _Drawn(LogitsProcessor):
    """Adds Gumbel noise, by which the largest value is a draw at temperature 1: each row has chance of its own."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._chances = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        drawn = [torch.empty(scores.shape[-1]).exponential_(generator=chance) for chance in self._chances]
        return scores.log_softmax(-1) - torch.stack(drawn).log().to(scores.device)


def _seed(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")
