"""Models on this machine: tiny ones of random weights, which these checks write to disk."""

from __future__ import annotations

import io
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPModel,
    CLIPProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

from tvsnap import InfrastructureError, UsageError
from tvsnap.plugins.video import Captioner, Clip, Prompt

TIME = 120.0
SIZE = {"shortest_edge": 16}
CROP = {"height": 16, "width": 16}
TEMPLATE = (
    "{% for m in messages %}{% for part in m.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}>{% endif %}"
)


def tokenizer() -> Any:
    """One token a character."""
    words = ["|", "<image>", "?", *(chr(code) for code in range(32, 127) if chr(code) not in "|?")]
    model = Tokenizer(models.WordLevel({one: number for number, one in enumerate(words)}, unk_token="?"))
    model.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=model,
        eos_token="|",
        pad_token="|",
        additional_special_tokens=["<image>"],
        extra_special_tokens={"image_token": "<image>"},
        model_max_length=64,
    )


def vision() -> dict[str, int]:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return {**sizes, "image_size": 16, "patch_size": 8}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that compares pictures and texts."""
    folder = tmp_path_factory.mktemp("models") / "tiny-clip"
    torch.manual_seed(0)
    text = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text |= {"vocab_size": 128, "max_position_embeddings": 64, "eos_token_id": 0, "bos_token_id": 2, "pad_token_id": 0}
    CLIPModel(CLIPConfig(text_config=text, vision_config=vision(), projection_dim=8)).save_pretrained(folder)
    CLIPProcessor(CLIPImageProcessorPil(size=SIZE, crop_size=CROP), tokenizer()).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def captioner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that answers prompts with pictures."""
    folder = tmp_path_factory.mktemp("models") / "tiny-llava"
    torch.manual_seed(3)
    text = LlamaConfig(
        vocab_size=128, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        initializer_range=1.0, bos_token_id=2, eos_token_id=0, pad_token_id=0, max_position_embeddings=512,
    )  # fmt: skip
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**vision()), text_config=text, image_token_index=1, image_seq_length=4
    )
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    LlavaProcessor(
        CLIPImageProcessorPil(size=SIZE, crop_size=CROP),
        tokenizer(),
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    ).save_pretrained(folder)
    return folder


def picture(colour: str, size: tuple[int, int] = (40, 30), kind: str = "JPEG") -> bytes:
    made = io.BytesIO()
    Image.new("RGB", size, colour).save(made, kind)
    return made.getvalue()


PICTURES = [picture(colour) for colour in ("red", "blue", "green", "white", "black")]


def test_pictures_and_texts_have_vectors_of_one_length(clip: Path) -> None:
    model = Clip(clip, batch=2)
    pictures = model.embed_pictures(PICTURES, seconds=TIME).vectors
    texts = model.embed_texts(["a red circle", "blue", "x" * 500], seconds=TIME).vectors
    assert {len(one) for one in (*pictures, *texts)} == {8}
    assert (len(pictures), len(texts)) == (5, 3)
    assert len({tuple(one) for one in pictures}) == 5
    assert model.embed_pictures([], seconds=TIME).vectors == []


def test_batches_give_the_same_vectors(clip: Path) -> None:
    one, all = (Clip(clip, batch=batch).embed_pictures(PICTURES, seconds=TIME).vectors for batch in (1, 16))
    assert torch.allclose(torch.tensor(one), torch.tensor(all), atol=1e-5)


def test_prompts_are_answered_the_same_each_time(captioner: Path) -> None:
    model = Captioner(captioner)
    prompts = [Prompt("What is it?", (one, PICTURES[0]), most_tokens=12) for one in PICTURES]
    prompts.append(Prompt("Without a picture", most_tokens=5))
    answers = model.ask(prompts, seconds=TIME)
    assert all(one.text for one in answers)
    assert answers[0].cost == {"prompt_tokens": 2 * 4 + len("What is it?>"), "completion_tokens": 12}
    assert len({one.text for one in answers}) > 1, "the pictures make no difference"
    assert Captioner(captioner).ask(prompts[::-1], seconds=TIME)[::-1] == answers


def test_threads_get_what_one_gets(captioner: Path) -> None:
    model = Captioner(captioner)
    prompts = [Prompt("What?", (one,), most_tokens=8) for one in PICTURES]
    expected = model.ask(prompts, seconds=TIME)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(model.ask(prompts, seconds=TIME)), daemon=True) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_other_weights_are_another_model(clip: Path, tmp_path: Path) -> None:
    same, other, settings = (tmp_path / name / "tiny-clip" for name in ("same", "other", "settings"))
    for folder in (same, other, settings):
        shutil.copytree(clip, folder)
    weights = CLIPModel.from_pretrained(other)
    with torch.no_grad():
        weights.logit_scale += 1
    weights.save_pretrained(other)
    file = settings / "processor_config.json"
    file.write_text(file.read_text().replace("0.48145466", "0.5"))
    (same / "README.md").write_text("What the model is.")
    assert Clip(clip).identity == Clip(same).identity
    identities = {Clip(clip).identity, Clip(other).identity, Clip(settings).identity, Clip(clip, batch=3).identity}
    assert len(identities) == 4


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (b"", "no JPEG"),
        (b"GIF89a", "no JPEG"),
        (PICTURES[0][:300], "no JPEG"),
        (picture("red", kind="PNG"), "no JPEG"),
        (picture("red", (400, 300)), "400 x 300 pixels, and most_pixels is 10000"),
    ],
    ids=["empty", "GIF", "cut", "PNG", "large"],
)
def test_pictures_that_are_none(clip: Path, captioner: Path, given: bytes, reason: str) -> None:
    with pytest.raises(InfrastructureError, match=reason):
        Clip(clip, most_pixels=10_000).embed_pictures([PICTURES[0], given], seconds=TIME)
    with pytest.raises(InfrastructureError, match=reason):
        Captioner(captioner, most_pixels=10_000).ask([Prompt("?", (given,))], seconds=TIME)


def test_a_decompression_bomb(clip: Path) -> None:
    bomb = picture("white", (16_000, 16_000))
    with pytest.raises(InfrastructureError, match="pixels"):
        Clip(clip).embed_pictures([bomb], seconds=TIME)


def test_time_that_is_over_is_an_error(clip: Path, captioner: Path) -> None:
    with pytest.raises(InfrastructureError, match="time was over"):
        Clip(clip).embed_pictures(PICTURES, seconds=0)
    with pytest.raises(InfrastructureError, match="time was over"):
        Captioner(captioner).ask([Prompt("?", most_tokens=200)], seconds=0.001)


def test_what_makes_no_sense_is_named(clip: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="batch"):
        Clip(clip, batch=0)
    with pytest.raises(UsageError, match="most_pixels"):
        Clip(clip, most_pixels=-1)
    with pytest.raises(UsageError, match="no model"):
        Clip(tmp_path)
    with pytest.raises(UsageError, match="nothing is downloaded"):
        Captioner("nobody/no-such-model")
    broken = tmp_path / "broken"
    shutil.copytree(clip, broken)
    (broken / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(UsageError, match="cannot be loaded"):
        Clip(broken).embed_texts(["a"], seconds=TIME)
    with pytest.raises(UsageError, match="cannot be loaded"):
        Captioner(clip).ask([Prompt("?")], seconds=TIME)


def test_weights_that_are_missing_are_not_made_up(clip: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tiny-clip"
    shutil.copytree(clip, folder)
    weights = load_file(folder / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match="visual_projection"):
        Clip(folder).embed_texts(["a"], seconds=TIME)
