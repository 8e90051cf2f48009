"""What `Asked` takes from models and embedders, and what it refuses; without sandboxes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy
import pytest

from tvsnap import Sandbox
from tvsnap.errors import DependencyFailed
from tvsnap.plugins.video import Answer, Prompt, Vectors, WordLlama
from tvsnap.plugins.video.models import Asked

AGAIN = "; nothing is recorded, and the call can be made again"


class Given:
    """A model and an embedder of texts and pictures that gives what it is told, or raises it."""

    identity = "given"

    def __init__(self, told: Any, cost: Any = None) -> None:
        self.told = told
        self.cost = {} if cost is None else cost

    def _give(self) -> Any:
        if isinstance(self.told, Exception):
            raise self.told
        return self.told

    def ask(self, prompts: Sequence[Prompt], *, sandbox: Sandbox | None, seconds: float) -> Any:
        return self._give()

    def embed_texts(self, texts: Sequence[str], *, seconds: float) -> Vectors:
        return Vectors(self._give(), self.cost)

    def embed_pictures(self, pictures: Sequence[bytes], *, seconds: float) -> Vectors:
        return self.embed_texts([], seconds=seconds)


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def unpacked(packed: bytes) -> list[float]:
    return [float(number) for number in numpy.frombuffer(packed, "<f4")]


@pytest.mark.parametrize(
    ("vectors", "reason"),
    [
        ([[0.0, 0.0], [1.0, 0.0]], "gave a vector of zeros"),
        ([[1.0, 0.0], [0, -0.0]], "gave a vector of zeros"),
        ([[], []], "gave a vector of zeros"),
        ([[1.0], [1.0, 2.0]], "all of one length"),
        ([[1.0]], "must give 2 lists"),
        ([[float("nan")], [1.0]], "finite"),
        ([[float("inf")], [1.0]], "finite"),
        ([[10**400], [1.0]], "gave no vectors"),
        ([["x"], [1.0]], "gave no vectors"),
        (None, "gave no vectors"),
        (ValueError("away"), "failed: ValueError: away"),
        (DependencyFailed("away"), "failed: away"),
    ],
    ids=str,
)
def test_vectors_that_cannot_be_compared_are_a_failure(vectors: Any, reason: str) -> None:
    embedder = Given(vectors)
    asked = Asked(None, 9)
    ways: list[Callable[[], object]] = [
        partial(asked.text_vectors, embedder, ["a", "b"]),
        partial(asked.picture_vectors, embedder, [b"a", b"b"]),
    ]
    for ask in ways:
        with pytest.raises(DependencyFailed, match=reason) as raised:
            ask()
        assert str(raised.value).startswith("the model 'given' ")
        assert str(raised.value).endswith(AGAIN)


def test_an_empty_text_may_have_no_direction() -> None:
    packed = Asked(None, 9).text_vectors(Given([[0.0, 0.0], [0.0, 3.0]]), ["", "a"])
    assert [unpacked(one) for one in packed] == [[0.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("size", [5e-324, 1e-200, 1e-30, 1.0, 3e38, 1e300, sys.float_info.max])
def test_directions_are_kept_of_numbers_of_any_size(size: float) -> None:
    (packed,) = Asked(None, 9).text_vectors(Given([[size, -size, 0.0]]), ["a"])
    assert unpacked(packed) == pytest.approx([0.5**0.5, -(0.5**0.5), 0.0])


@pytest.mark.parametrize(
    "cost", [{"usd": float("nan")}, {"usd": 10**400}, {"usd": 1e300}, {"usd": -1}, {"usd": "1"}, {1: 1}, [1]], ids=str
)
def test_a_cost_that_is_no_number_is_a_failure(cost: Any) -> None:
    with pytest.raises(DependencyFailed, match=r"the model 'given' gave a cost that is no number.*made again"):
        Asked(None, 9).text_vectors(Given([[1.0]], cost), ["a"])
    with pytest.raises(DependencyFailed, match=r"the model 'given' gave a cost that is no number.*made again"):
        Asked(None, 9).texts(Given([Answer("a", cost)]), [Prompt("?")])


@pytest.mark.parametrize("answers", [[], ["a"], [Answer(" ")], [Answer(7)], [Answer("\0")], None, [Answer("a")] * 2])  # type: ignore[arg-type]
def test_failures_of_answers_name_the_model(answers: Any) -> None:
    with pytest.raises(DependencyFailed) as raised:
        Asked(None, 9).texts(Given(answers), [Prompt("?")])
    assert str(raised.value).startswith("the model 'given' ")
    assert str(raised.value).endswith(AGAIN)


def test_the_default_embedder_gives_a_direction_to_any_text() -> None:
    texts = [*"a.?!—日ا५\u200b\u0300\x01\0\n\t \u3000\ufffd\U0001f642", "...", "日本語", "ελληνικά", "   ", "-" * 5000]
    packed = Asked(None, 60).text_vectors(WordLlama(), texts)
    assert [numpy.linalg.norm(unpacked(one)) for one in packed] == pytest.approx([1.0] * len(texts))
