"""The small policy: its tokens say what tasks say, its warm start has mistakes, and it learns what it is shown."""

from __future__ import annotations

import random

import pytest

from tvsnap.plugins.training.agents import Agents
from tvsnap.plugins.training.generation import ModelGenerator
from tvsnap.plugins.training.loop import Learner, Settings
from tvsnap.plugins.training.policy import policy, tokenizer_of, with_mistakes
from tvsnap.plugins.training.tasks import tasks

KINDS = ["tune", "report", "repair"]


def test_its_tokens_say_commands_and_outputs_of_tasks_that_it_has_not_seen() -> None:
    tokenizer = tokenizer_of(tasks("train", 150, 1, kinds=KINDS))
    for task in tasks("test", 30, 2, kinds=KINDS):
        for text in (task.instruction, *task.solutions[0], *task.outputs):
            tokens = tokenizer.encode(text, add_special_tokens=False)
            assert tokenizer.unk_token_id not in tokens
            assert tokenizer.decode(tokens) == text
            assert len(tokens) <= 12
    assert len(tokenizer) < 200
    assert tokenizer.encode("anything else", add_special_tokens=False) == [tokenizer.unk_token_id]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_as_many_commands_have_mistakes_as_asked(share: float) -> None:
    chance, right, commands = random.Random(0), 0, 0
    for task in tasks("train", 300, 1, kinds=KINDS):
        found = with_mistakes(task, share, chance)
        solution = found.solutions[0]
        assert len(solution) == len(found.outputs)
        right += sum(command in solution for command in task.solutions[0])
        commands += len(task.solutions[0])
        if share == 0:
            assert (solution, found.outputs) == (task.solutions[0], task.outputs)
    assert 1 - right / commands == pytest.approx(share, abs=0.03)


def test_it_learns_what_it_is_shown() -> None:
    tokenizer = tokenizer_of(tasks("train", 150, 1, kinds=KINDS))
    model = policy(tokenizer)
    generator = ModelGenerator(model, tokenizer, tokens=16, rows=4)
    agents = Agents(generator, tokenizer)
    shown = [agents.solved(task, 0, task.outputs) for task in tasks("train", 3, 4, kinds=KINDS)]
    learner = Learner(model, Settings(learning_rate=3e-3), rows=8)
    losses = [learner.imitate(shown) for _ in range(60)]
    assert losses[0] > 4
    assert losses[-1] < 0.1
    prompts = [one.tokens[: one.turns[0][0]] for one in shown]
    for one, prompt in zip(shown, prompts, strict=True):
        (written,) = generator.write_all([prompt], [0])
        assert tuple(written) == tuple(one.tokens[slice(*one.turns[0])])
