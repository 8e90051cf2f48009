"""A policy that is small enough to be trained on a processor: a transformer with a vocabulary of its own.

Its tokens are the words and numbers that tasks differ in, and what stands between them: a command has a few tokens. It
is warm-started on solutions of generated tasks with mistakes in them, so that there is something to learn.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tvsnap.plugins.extras import brought_by
from tvsnap.plugins.training import arithmetic
from tvsnap.plugins.training.tasks import Task
from tvsnap.plugins.training.tasks.task import WORDS

with brought_by("train"):
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

_ARGUMENTS = rf"{'|'.join(WORDS)}|[0-9]+|\n"
_UNKNOWN, _END = "<unknown>", "<end>"
_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}\n"
    "{% elif m.role == 'assistant' %}{{ m.content }}<end>{% endif %}{% endfor %}"
)
_NUMBERS = [str(number) for number in range(100)]
_ROOM = 256
"""Tokens: the most that are said in a rollout."""


def tokenizer_of(tasks: Iterable[Task]) -> Any:
    """Returns a tokenizer of transformers that knows what is said in these tasks.

    Args:
        tasks: some tasks of each kind.
    """
    texts = ["Output:"]
    for task in tasks:
        texts += [task.instruction, *task.solutions[0], *task.outputs, "DONE"]
    pieces = [piece for text in texts for piece in re.split(f"({_ARGUMENTS})", text) if piece]
    vocabulary = dict.fromkeys([_UNKNOWN, _END, "\n", *WORDS, *_NUMBERS, *pieces])
    model = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(vocabulary)}, unk_token=_UNKNOWN))
    model.pre_tokenizer = pre_tokenizers.Split(Regex(_ARGUMENTS), "isolated")
    model.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model, eos_token=_END, unk_token=_UNKNOWN, clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def policy(tokenizer: Any, *, width: int = 64, layers: int = 2, seed: int = 0) -> Any:
    """Returns a model of transformers with random weights.

    Args:
        tokenizer: its tokenizer.
        width: of its layers.
        layers: how many it has.
        seed: of the weights.
    """
    arithmetic.warn_if_too_late()
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=_ROOM,
        n_embd=width,
        n_layer=layers,
        n_head=4,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return GPT2LMHeadModel(config).eval()


def with_mistakes(task: Task, share: float, chance: random.Random) -> Task:
    """Returns a task with mistakes in its first solution: a command is missing, or has a wrong word or number.

    A wrong word is one that was said before; a wrong number is one more than the right one.

    Args:
        task: the task.
        share: of the commands that are wrong.
        chance: draws which.
    """
    text, commands, outputs = task.instruction, list[str](), list[str]()
    for number, command in enumerate(task.solutions[0]):
        output = task.outputs[number] if number < len(task.outputs) else ""
        if chance.random() < share:
            command = _wrong(command, text, chance)
        if command:
            commands.append(command)
            outputs.append(output)
            text += output
    return replace(task, solutions=(tuple(commands),), outputs=tuple(outputs))


def _wrong(command: str, text: str, chance: random.Random) -> str:
    """Returns a command with another word or number; nothing where there is none, or in half of the cases."""
    places = [match for match in re.finditer(_ARGUMENTS, command) if match[0] in text]
    if not places or chance.random() < 0.5:
        return ""
    match = chance.choice(places)
    others = [word for word in re.findall("|".join(WORDS), text) if word != match[0]]
    if match[0].isdigit():
        other = str((int(match[0]) + 1) % 100)
    elif others:
        other = others[0]
    else:
        return ""
    return command[: match.start()] + other + command[match.end() :]
