"""Texts as vectors: what the search for a similar state compares."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tvsnap import InfrastructureError, UsageError

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Vector = NDArray[numpy.float32]


class Embedder(Protocol):
    """Returns the vector of a text.

    Any callable will do. Its attribute `name` tells whose vectors may be compared: change it when the model changes. A
    function that its module has under its own name needs none; all else does, as a `functools.partial`, an instance of
    a class, a bound method or a function inside of another may stand for several models.
    """

    def __call__(self, text: str) -> Sequence[float]:
        """Returns a vector, of the same length for every text.

        Args:
            text: a text of any length.
        """
        ...


class WordLlamaEmbedder:
    """The model `l2_supercat` of the package wordllama, which carries it: averages of the vectors of words.

    It takes some 0.05 ms for a sentence, downloads nothing, and needs no GPU. Texts that differ in a number alone are
    very similar to it: where numbers matter, write them as words that differ, or give the hash of the state.

    Attributes:
        name: `wordllama/l2_supercat/256`.
    """

    name = "wordllama/l2_supercat/256"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._model: Any = None

    def __call__(self, text: str) -> Sequence[float]:
        """Returns a vector of 256 numbers.

        Args:
            text: a text of any length.

        Raises:
            UsageError: the package is missing.
        """
        with self._lock:
            if self._model is None:
                self._model = _load()
        vector: Sequence[float] = self._model.embed([text])[0]
        return vector


def _load() -> Any:
    try:
        with _logging_as_it_was():
            import wordllama
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the package {error.name} is missing, which embeds texts: pip install 'tvsnap[priors]', or give an "
            "embedder of your own (wordllama has no wheel for Python 3.14 yet)"
        ) from None
    from pathlib import Path

    # wordllama looks for the files that it carries in folders of other names, but also where its downloads are.
    carried = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load("l2_supercat", cache_dir=carried, dim=256, disable_download=True)


@contextlib.contextmanager
def _logging_as_it_was() -> Iterator[None]:
    """A block that imports what sets up logging for the whole process, and should not."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        for handler in set(root.handlers) - set(handlers):
            root.removeHandler(handler)


def name_of(embedder: Callable[[str], Sequence[float]]) -> str:
    """Returns the name that tells whose vectors may be compared.

    Raises:
        UsageError: it has none, and none follows from where it is.
    """
    name = getattr(embedder, "name", None)
    if name is None:
        module, place = getattr(embedder, "__module__", None), getattr(embedder, "__qualname__", None)
        if not (isinstance(module, str) and isinstance(place, str) and _member(module, place) is embedder):
            raise UsageError(
                f"an embedder needs a name that tells whose vectors may be compared, and {embedder!r:.60} has none: "
                "give it an attribute 'name', or write a function at the top of a module"
            )
        name = f"{module}.{place}"
    if not isinstance(name, str) or not name:
        raise UsageError(f"the embedder's name must be a text, not {name!r}")
    return name


def _member(module: str, place: str) -> object:
    """Returns what a module has at a place, such as `Class.method`; None if it has nothing there."""
    value: object = sys.modules.get(module)
    for part in place.split("."):
        value = getattr(value, part, None)
    return value


def unit(vector: Sequence[float], name: str) -> Vector | None:
    """Returns a vector with length 1; None for a vector of zeros, which is similar to none.

    Raises:
        InfrastructureError: the embedder did not return a list of finite numbers.
    """
    numpy = load_numpy()
    try:
        array = numpy.asarray(vector, dtype=numpy.float32)
    except (TypeError, ValueError) as error:
        raise InfrastructureError(f"the embedder {name} did not return a list of numbers: {error}") from None
    if array.ndim != 1 or not array.size or not numpy.isfinite(array).all():
        raise InfrastructureError(
            f"the embedder {name} must return one list of finite numbers for a text; it returned an array of shape "
            f"{array.shape}" + ("" if numpy.isfinite(array).all() else " with numbers that are not finite")
        )
    length = float(numpy.linalg.norm(array))
    return None if length == 0.0 else array / numpy.float32(length)


def load_numpy() -> Any:
    """Returns the module numpy, which only the search for similar states needs."""
    try:
        import numpy
    except ModuleNotFoundError:
        raise UsageError(
            "the package numpy is missing, which the search for similar states needs: pip install 'tvsnap[priors]', "
            "or give states by their hash"
        ) from None
    return numpy
