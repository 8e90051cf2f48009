"""Models that the tools of videos ask: one small protocol, wherever a model runs, and what an answer costs."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tvsnap import InfrastructureError, Sandbox, UsageError
from tvsnap.errors import DependencyFailed
from tvsnap.plugins.priors import WordLlamaEmbedder

_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LONGEST_ANSWER = 100_000
"""Characters."""
_KINDS = {"ask": "Model", "embed_texts": "Embedder", "embed_pictures": "PictureEmbedder"}
MOST_COST = 2.0**53
"""A number of a cost, at most: the largest below which a float tells whole numbers apart."""
_AGAIN = "nothing is recorded, and the call can be made again"
_CLEARING = 30.0
"""Seconds."""
_REQUEST = "/tmp/.tvsnap-prompts.json"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question to a model.

    Attributes:
        text: the question, or what is to be done.
        pictures: JPEG files that belong to it, in the order of time.
        most_tokens: the length of the answer, at most.
    """

    text: str
    pictures: tuple[bytes, ...] = ()
    most_tokens: int = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer.

    Attributes:
        text: the answer.
        cost: its cost beyond time, by unit, such as {"tokens": 812, "usd": 0.0004}.
    """

    text: str
    cost: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Vectors:
    """Embeddings.

    Attributes:
        vectors: one for each of what was given, all of the same length.
        cost: their cost, by unit; see `Answer.cost`.
    """

    vectors: Sequence[Sequence[float]]
    cost: Mapping[str, float] = field(default_factory=dict)


class Model(Protocol):
    """A model that answers prompts with text. Thread-safe.

    An answer must depend on the prompt alone: temperature 0, or a fixed seed. Any exception is a failure of the model,
    which goes to the caller of the tool, and is never recorded.
    """

    @property
    def identity(self) -> str:
        """Which model it is, in which version, with which settings: part of each call's key."""
        ...

    def ask(self, prompts: Sequence[Prompt], *, sandbox: Sandbox | None, seconds: float) -> Sequence[Answer]:
        """Returns an answer to each prompt.

        Args:
            prompts: they may be asked in any order, and side by side.
            sandbox: the one in which the tool is called, for a model whose attribute `in_sandbox` is true; else None.
                The tools that ask such a model are observed like any that may change the state.
            seconds: after which the answers are of no use any more.
        """
        ...


class Embedder(Protocol):
    """Returns vectors of texts, of which similar ones have a large cosine. Thread-safe; failures as of `Model`."""

    @property
    def identity(self) -> str:
        """Which model it is, in which version: part of each call's key."""
        ...

    def embed_texts(self, texts: Sequence[str], *, seconds: float) -> Vectors:
        """Returns a vector of each text.

        Args:
            texts: captions, or what is looked for.
            seconds: after which the vectors are of no use any more.
        """
        ...


class PictureEmbedder(Embedder, Protocol):
    """Returns vectors of pictures, too, which can be compared with those of texts, as CLIP does."""

    def embed_pictures(self, pictures: Sequence[bytes], *, seconds: float) -> Vectors:
        """Returns a vector of each picture.

        Args:
            pictures: JPEG files.
            seconds: after which the vectors are of no use any more.
        """
        ...


class WordLlama:
    """The model of the package wordllama, which carries its weights: averages of the vectors of words."""

    def __init__(self) -> None:
        self._embedder = WordLlamaEmbedder()

    @property
    def identity(self) -> str:
        return self._embedder.name

    def embed_texts(self, texts: Sequence[str], *, seconds: float) -> Vectors:
        """See `Embedder.embed_texts`; raises UsageError if the package is missing."""
        return Vectors([self._embedder(text) for text in texts])


class InSandbox:
    """A model that runs in the sandbox: a command that reads prompts and prints answers.

    The command is run in a fresh shell once for all prompts of a call. It reads JSON from its standard input: a list of
    objects with the keys `text`, `pictures` (paths) and `most_tokens`. It prints a list of texts as JSON.
    """

    def __init__(self, command: str, identity: str, *, user: str | None = None) -> None:
        """
        Args:
            command: in the syntax of bash.
            identity: which model it is, and which version.
            user: the user that runs it; by default the image's.
        """
        self._command = command
        self._user = user
        self.identity = f"in the sandbox: {identity}: {command}"
        self.in_sandbox = True

    def ask(self, prompts: Sequence[Prompt], *, sandbox: Sandbox | None, seconds: float) -> list[Answer]:
        """See `Model.ask`.

        Raises:
            InfrastructureError: the command failed, took too long, or printed something else.
        """
        assert sandbox is not None  # as `in_sandbox` says
        requests = []
        for number, prompt in enumerate(prompts):
            paths = [f"{_REQUEST}.{number}.{place}.jpg" for place in range(len(prompt.pictures))]
            for path, picture in zip(paths, prompt.pictures, strict=True):
                sandbox.write_file(path, picture, user="root")
            requests.append({"text": prompt.text, "pictures": paths, "most_tokens": prompt.most_tokens})
        sandbox.write_file(_REQUEST, json.dumps(requests).encode(), user="root")
        outcome = sandbox.exec(f"({self._command}\n) < {_REQUEST}", timeout=seconds, user=self._user, separate=True)
        sandbox.exec(f"rm -f {_REQUEST}*", timeout=_CLEARING, user="root")
        if outcome.exit_code != 0 or outcome.truncated:
            reason = (outcome.errors or b"").decode("utf-8", "replace").strip()[-300:]
            raise InfrastructureError(f"the model {self.identity!r} failed (status {outcome.exit_code}): {reason}")
        try:
            answers = json.loads(outcome.output)
        except ValueError:
            answers = None
        if not isinstance(answers, list) or not all(isinstance(one, str) for one in answers):
            raise InfrastructureError(f"the model {self.identity!r} must print a list of texts as JSON")
        return [Answer(one) for one in answers]


def failure(identity: str, reason: str) -> DependencyFailed:
    """Returns the error that says that a model failed.

    Args:
        identity: which model it is.
        reason: the text after its name, such as "gave an empty answer".
    """
    return DependencyFailed(f"the model {identity!r} {reason}; {_AGAIN}")


def runs_in_sandbox(model: Model | None) -> bool:
    """Returns whether a model is given the sandbox, and so may change it."""
    return bool(getattr(model, "in_sandbox", False))


@dataclass(frozen=True)
class Models:
    """The models that the tools of videos ask. What is not given is done without a model, by rules.

    Attributes:
        embedder: makes vectors of captions, and of searched texts.
        captioner: says what a segment shows; by default the text, the words and the objects in it.
        answerer: answers questions about pictures; by default the facts that are most similar to the question.
        reasoner: turns questions about objects into SQL, and rows into an answer; by default, names of objects
            in the question are looked up.
        pictures: embeds frames, beside their captions; by default, captions alone are searched.
    """

    embedder: Embedder = field(default_factory=WordLlama)
    captioner: Model | None = None
    answerer: Model | None = None
    reasoner: Model | None = None
    pictures: PictureEmbedder | None = None

    def identities(self) -> dict[str, str]:
        """Returns which models there are, by their part; it is part of each call's key.

        Raises:
            UsageError: a model does not say which one it is, or is of another kind than its part needs.
        """
        identities = {}
        for part, model in vars(self).items():
            if model is None and part != "embedder":
                continue
            method = {"embedder": "embed_texts", "pictures": "embed_pictures"}.get(part, "ask")
            if not callable(getattr(model, method, None)):
                raise UsageError(f"the {part} {model!r} has no method `{method}`; see tvsnap.video.{_KINDS[method]}")
            identity = getattr(model, "identity", None)
            if not isinstance(identity, str) or not identity:
                raise UsageError(
                    f"the {part} {model!r} has no `identity`: a text that names model, version and settings, "
                    "so that answers of one are never taken for those of another"
                )
            identities[part] = identity
        return identities


class Asked:
    """Asks models for one call of a tool, and adds up what that costs."""

    def __init__(self, sandbox: Sandbox | None, seconds: float) -> None:
        """
        Args:
            sandbox: the one in which the tool is called.
            seconds: that the call may take.
        """
        self._sandbox = sandbox
        self._until = time.monotonic() + seconds
        self._cost: defaultdict[str, float] = defaultdict(float)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return max(0.001, self._until - time.monotonic())

    @property
    def cost(self) -> dict[str, float]:
        """The cost so far, by unit."""
        return dict(self._cost)

    def texts(self, model: Model, prompts: Sequence[Prompt]) -> list[str]:
        """Returns a model's answers.

        Raises:
            DependencyFailed: the model failed; nothing of that may be a tool's answer.
        """
        if not prompts:
            return []
        sandbox = self._sandbox if runs_in_sandbox(model) else None
        answers = self._ask(model, lambda: list(model.ask(prompts, sandbox=sandbox, seconds=self.left)))
        texts = [one.text for one in answers if isinstance(one, Answer) and isinstance(one.text, str)]
        if not len(answers) == len(texts) == len(prompts) or not all(text.strip() for text in texts):
            raise failure(model.identity, f"must give a text for each of {len(prompts)} prompts, and did not")
        for one in answers:
            if "\0" in one.text or _SURROGATE.search(one.text) or len(one.text) > _LONGEST_ANSWER:
                raise failure(
                    model.identity,
                    f"gave no text of at most {_LONGEST_ANSWER} characters: it has {len(one.text)}, or a NUL, or half "
                    "of a surrogate pair",
                )
            self._add(one.cost, model)
        return [one.text.strip() for one in answers]

    def text_vectors(self, model: Embedder, texts: Sequence[str]) -> list[bytes]:
        """Returns vectors of texts, of length 1, packed as 32-bit numbers; raises what `texts` does.

        Only of a text without any character may the vector be zero.
        """
        return self._packed(model, texts, lambda: model.embed_texts(texts, seconds=self.left))

    def picture_vectors(self, model: PictureEmbedder, pictures: Sequence[bytes]) -> list[bytes]:
        """Returns vectors of pictures, of length 1, packed as 32-bit numbers; raises what `texts` does."""
        return self._packed(model, pictures, lambda: model.embed_pictures(pictures, seconds=self.left))

    def _packed(self, model: Embedder, items: Sequence[str] | Sequence[bytes], ask: Any) -> list[bytes]:
        import numpy

        answer = self._ask(model, ask)
        try:
            vectors = [numpy.asarray(one, dtype=float) for one in answer.vectors]
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            raise failure(model.identity, f"gave no vectors: {error}") from None
        shapes = {one.shape for one in vectors}
        finite = all(numpy.isfinite(one).all() for one in vectors)
        if len(vectors) != len(items) or len(shapes) > 1 or not finite or any(len(shape) != 1 for shape in shapes):
            raise failure(model.identity, f"must give {len(items)} lists of finite numbers, all of one length")
        if any(one and not vector.any() for one, vector in zip(items, vectors, strict=True)):
            raise failure(model.identity, "gave a vector of zeros, which is similar to nothing")
        self._add(answer.cost, model)
        # Only directions are compared. First the largest number becomes 1: a square of the numbers may be no float.
        scaled = [one / numpy.abs(one).max() if one.any() else one for one in vectors]
        return [(one / (numpy.linalg.norm(one) or 1.0)).astype("<f4").tobytes() for one in scaled]

    def _ask(self, model: Model | Embedder, ask: Any) -> Any:
        began = time.monotonic()
        try:
            return ask()
        except DependencyFailed as error:
            if str(error).endswith(_AGAIN):
                raise
            raise failure(model.identity, f"failed: {error}") from error
        except (InfrastructureError, UsageError):
            raise
        except Exception as error:
            raise failure(model.identity, f"failed: {type(error).__name__}: {error}") from error
        finally:
            self._cost["model_s"] += round(time.monotonic() - began, 3)

    def _add(self, cost: Mapping[str, float], model: Model | Embedder) -> None:
        is_valid = isinstance(cost, Mapping) and all(
            isinstance(unit, str) and isinstance(number, (int, float)) and 0 <= number <= MOST_COST
            for unit, number in cost.items()
        )
        if not is_valid:
            raise failure(model.identity, f"gave a cost that is no number from 0 to 2^53: {str(cost)[:80]}")
        for unit, number in cost.items():
            self._cost[unit] += number
