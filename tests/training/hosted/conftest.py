"""Fixtures of checks that need PyTorch: a tiny model of random weights, with a token for each character.

The Python of all other tests reads this file, too, and has no PyTorch.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

TEMPLATE = (
    "{% for m in messages %}<{{ m.content }}{% if m.role == 'assistant' %}|{% endif %}>{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)


@pytest.fixture
def tokenizer() -> Any:
    """One token a character; `|` ends what the model writes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    characters = ["|", *(chr(code) for code in range(32, 127) if chr(code) != "|"), "\n", "?"]
    model = Tokenizer(models.WordLevel({one: number for number, one in enumerate(characters[:-1])}, unk_token=" "))
    model.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    model.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(tokenizer_object=model, eos_token="|", clean_up_tokenization_spaces=False)
    made.chat_template = TEMPLATE
    return made


@pytest.fixture
def model() -> Any:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=1024, n_embd=16, n_layer=1, n_head=2)).eval()


@pytest.fixture
def url() -> str:
    """The address of a server of tvsnap, which the test that runs these has started."""
    return os.environ["TVSNAP_TEST_URL"]
