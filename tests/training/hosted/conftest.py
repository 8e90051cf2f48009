"""Fixtures of checks that need PyTorch: a tiny model of random weights, with a token for each character."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for m in messages %}<{{ m.content }}{% if m.role == 'assistant' %}|{% endif %}>{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)


@pytest.fixture
def tokenizer() -> Any:
    """One token a character; `|` ends what the model writes."""
    characters = ["|", *(chr(code) for code in range(32, 127) if chr(code) != "|"), "\n", "?"]
    model = Tokenizer(WordLevel({one: number for number, one in enumerate(characters[:-1])}, unk_token=" "))
    model.pre_tokenizer = Split("", "isolated")
    model.decoder = Fuse()
    made = PreTrainedTokenizerFast(tokenizer_object=model, eos_token="|", clean_up_tokenization_spaces=False)
    made.chat_template = TEMPLATE
    return made


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=1024, n_embd=16, n_layer=1, n_head=2)).eval()
