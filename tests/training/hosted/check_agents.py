"""Rollouts of a tiny model in real sandboxes: the same with the cache and without, and what the learner is given."""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import tvsnap
from tvsnap.images import ImageStore
from tvsnap.training.agents import Agents, Played, command_in
from tvsnap.training.loop import Learner, variant
from tvsnap.training.tasks import tasks

TEMPLATE = (
    "{% for m in messages %}<{{ m.content }}{% if m.role == 'assistant' %}|{% endif %}>{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)


def tokenizer() -> Any:
    """One token a character; `|` ends what the model writes."""
    characters = ["|", *(chr(code) for code in range(32, 127) if chr(code) != "|"), "\n", "?"]
    model = Tokenizer(WordLevel({one: number for number, one in enumerate(characters[:-1])}, unk_token=" "))
    model.pre_tokenizer = Split("", "isolated")
    model.decoder = Fuse()
    made = PreTrainedTokenizerFast(tokenizer_object=model, eos_token="|", clean_up_tokenization_spaces=False)
    made.chat_template = TEMPLATE
    return made


def model() -> Any:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=1024, n_embd=16, n_layer=1, n_head=2)).eval()


class Scripted(Agents):
    """Writes what it is told instead of asking the model, but draws as the seed says."""

    def __init__(self, *scripts: tuple[str, ...], **options: Any) -> None:
        super().__init__(model(), tokenizer(), **options)
        self._scripts = scripts

    def write(self, past: Any, seeds: Any) -> list[list[int]]:
        written = []
        for tokens, seed in zip(past, seeds, strict=True):
            said = self.tokenizer.decode(tokens)
            turn = said.count("Output:")
            script = self._scripts[seed % len(self._scripts)]
            if turn:  # as it began
                script = next(each for each in self._scripts if f">{each[0]}|" in said)
            text = script[turn] if turn < len(script) else "DONE"
            written.append([*self.tokenizer.encode(text, add_special_tokens=False), self._end])
        return written


@pytest.fixture
def images() -> ImageStore:
    return ImageStore(Path(os.environ["TVSNAP_HOME"]))


def play(agents: Agents, home: Path, images: Any, k: int = 4, **options: Any) -> list[list[Played]]:
    async def go() -> list[list[Played]]:
        async with tvsnap.AsyncCache(home, images=images, policy="record-all", **options) as cache:
            return await agents.play(cache, tasks(n=2, kinds=["file", "count"]), k)

    return asyncio.run(go())


def test_a_solution_is_rewarded_and_what_it_said_is_told_apart(tmp_path: Path, images: ImageStore) -> None:
    (task,) = tasks(n=1, kinds=["file"])
    agents = Scripted(task.solutions[1], ("echo no",), turns=4)
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


def test_rollouts_are_the_same_with_the_cache_and_without(tmp_path: Path, images: ImageStore) -> None:
    scripts = (("echo amber > /app/a; ls /app", "cat /app/a"), ("ls /app", "pwd"), ("ls /app", "cat /app/log.txt"))
    found = {}
    for mode, options in (("cache", {}), ("again", {}), ("none", {"use_cache": False})):
        home = tmp_path / ("none" if mode == "none" else "cache")
        found[mode] = play(Scripted(*scripts), home, images, **options)
    said = {mode: [one.tokens for group in groups for one in group] for mode, groups in found.items()}
    assert said["cache"] == said["again"] == said["none"]
    sources = {
        mode: Counter(call.result.source for group in groups for one in group for call in one.calls)
        for mode, groups in found.items()
    }
    assert set(sources["again"]) == {"hit"}
    assert set(sources["none"]) == {"executed"}
    assert {one.grade.source for group in found["again"] for one in group if one.grade} == {"hit"}


def test_what_a_model_draws_depends_on_its_seed_alone(tmp_path: Path, images: ImageStore) -> None:
    agents = Agents(model(), tokenizer(), turns=2, tokens=8)
    past = [agents.prompt(task) for task in tasks(n=3)]
    once = agents.write(past, [1, 2, 3])
    assert once == agents.write(past, [1, 2, 3])
    assert once != agents.write(past, [4, 5, 6])
    assert agents.write(past[1:2], [2]) == once[1:2]
    groups = play(agents, tmp_path, images, 3)
    update = Learner(agents.model, variant("loop", least_advantage=0.0)).learn(
        [[one.trajectory for one in group] for group in groups]
    )
    assert update.kept == 6
    assert math.isfinite(update.loss)


def test_draws_are_as_frequent_as_the_model_says() -> None:
    agents = Agents(model(), tokenizer(), tokens=1)
    past = agents.prompt(tasks(n=1)[0])
    with torch.no_grad():
        expected = agents.model(input_ids=torch.tensor([past])).logits[0, -1].softmax(-1)
    drawn = Counter(
        token for first in range(0, 2000, 100) for (token,) in agents.write([past] * 100, range(first, first + 100))
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
    ],
)
def test_commands(text: str, command: str | None) -> None:
    assert command_in(text) == command
