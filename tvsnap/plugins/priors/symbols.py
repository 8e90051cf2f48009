"""Symbols for continuous observations: an encoder that is learned from labelled pairs, and nearest centroids."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import BadZipFile

from tvsnap import UsageError
from tvsnap.plugins.priors.arguments import check_number, check_whole
from tvsnap.plugins.priors.embedding import load_numpy

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Numbers = NDArray[numpy.float32]

HIDDEN, DIMENSION = 32, 8
"""The width of the encoder's hidden layer, and the numbers that it returns."""
ARRAYS = ("mean", "scale", "first", "first_bias", "second", "second_bias", "centroids")


class Pair(NamedTuple):
    """Two observations, and whether they are of the same situation: one in which the same is to be done.

    Attributes:
        first: an observation, a list of numbers.
        second: another one, of the same length.
        same: the label.
    """

    first: Sequence[float]
    second: Sequence[float]
    same: bool


class Symbols:
    """Gives each observation the name of a situation, in words, so that `PriorCache` can look it up.

    The text of an observation is its nearest centroid's, so observations of one situation share exact answers. As an
    embedder (`PriorCache(embedder=symbols)`), it returns the centroid itself: with `delta` of at most 1, an answer of a
    situation whose centroid is near may serve, too.

    Encoding takes numpy alone; `learn` takes torch (`pip install 'tvsnap[continuous]'`).

    Attributes:
        name: has a digest of the encoder and its centroids, which texts have, too: answers of another one are never
            taken.
    """

    def __init__(self, arrays: dict[str, Numbers]) -> None:
        """
        Args:
            arrays: the encoder's, by the names in `ARRAYS`, as `learn` and `load` give them.

        Raises:
            UsageError: one is missing, their shapes do not fit each other, or a number is not finite.
        """
        numpy = load_numpy()
        missing = [name for name in ARRAYS if name not in arrays]
        if missing:
            raise UsageError(f"an encoder needs the arrays {', '.join(missing)}: save symbols with Symbols.save")
        self._arrays = {name: numpy.ascontiguousarray(arrays[name], dtype="<f4") for name in ARRAYS}
        self._check_shapes()
        self._check_numbers()
        digest = hashlib.sha256()
        for name in ARRAYS:
            digest.update(repr(self._arrays[name].shape).encode() + self._arrays[name].tobytes())
        self.name = f"symbols/{digest.hexdigest()[:16]}"

    def _check_shapes(self) -> None:
        """Raises UsageError for arrays whose shapes do not fit each other."""
        shapes = {name: array.shape for name, array in self._arrays.items()}
        sizes = [size for name in ("first", "second", "centroids") for size in shapes[name]]
        if len(sizes) == 6 and min(sizes) > 0:
            hidden, length, encoded, _, count, _ = sizes
            wanted = ((length,), (length,), (hidden, length), (hidden,), (encoded, hidden), (encoded,))
            if tuple(shapes.values()) == (*wanted, (count, encoded)):
                return
        raise UsageError(f"the shapes of an encoder's arrays do not fit each other: {shapes}")

    def _check_numbers(self) -> None:
        """Raises UsageError for arrays with numbers that no encoder has."""
        bad = [name for name in ARRAYS if not load_numpy().isfinite(self._arrays[name]).all()]
        if bad or not (self._arrays["scale"] > 0).all():
            raise UsageError(
                f"the array {bad[0] if bad else 'scale'} of an encoder has numbers that are not finite, or a scale "
                "that is not above 0: the observations were too large for numbers of 32 bits, or the file is damaged"
            )

    @classmethod
    def learn(
        cls, pairs: Sequence[Pair], count: int, *, margin: float = 0.0, steps: int = 500, seed: int = 0
    ) -> Symbols:
        """Learns an encoder by contrast, and centroids of what it makes of the pairs' observations.

        The loss of a pair of the same situation is 1 - cosine, that of others max(0, cosine - margin); the centroids
        are those of k-means on the sphere. Both are our choice, because the paper gives no formula.

        Args:
            pairs: a few hundred, of both labels.
            count: the number of symbols, at least 1, and at most as many as there are observations.
            margin: the cosine up to which observations of different situations cost nothing, -1 to 1.
            steps: steps of the optimiser, at least 1, each with all pairs.
            seed: the seed of the encoder's first weights and the first centroids.

        Raises:
            UsageError: torch is missing, the pairs have one label only, lengths that differ or numbers that are not
                finite or too large, there are fewer observations than symbols, or a parameter makes no sense.
        """
        check_number(margin, "margin", -1.0, 1.0)
        check_whole(steps, "steps")
        check_whole(count, "count")
        try:
            import torch
        except ModuleNotFoundError:
            raise UsageError(
                "the package torch is missing, which symbols are learned with: pip install 'tvsnap[continuous]'"
            ) from None
        _check_pairs(pairs, count)
        rows = [list(map(float, each)) for each in (*(p.first for p in pairs), *(p.second for p in pairs))]
        observations = torch.tensor(rows, dtype=torch.float32)
        if not torch.isfinite(observations).all():
            raise UsageError("the observations of pairs must be finite numbers")
        mean, scale = observations.mean(0), observations.std(0, correction=0).clamp_min(1e-6)
        scaled = (observations - mean) / scale
        labels = torch.tensor([1.0 if pair.same else -1.0 for pair in pairs])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            first, second = torch.nn.Linear(scaled.shape[1], HIDDEN), torch.nn.Linear(HIDDEN, DIMENSION)
            order = torch.randperm(len(scaled))
        encoder = torch.nn.Sequential(first, torch.nn.Tanh(), second)
        _train(encoder, scaled, labels, margin, steps)
        with torch.no_grad():
            encoded = torch.nn.functional.normalize(encoder(scaled))
            centroids = _centroids(encoded, encoded[order[:count]].clone())
        tensors = (mean, scale, first.weight, first.bias, second.weight, second.bias, centroids)
        return cls({name: tensor.detach().numpy() for name, tensor in zip(ARRAYS, tensors, strict=True)})

    @property
    def count(self) -> int:
        """The number of symbols."""
        return len(self._arrays["centroids"])

    def numbers(self, observations: Any) -> Any:
        """Returns the numbers of the symbols of many observations, from 0, as an array of whole numbers.

        Args:
            observations: an array with one observation a row.

        Raises:
            UsageError: they are of another length than those of the pairs, not finite, or too large.
        """
        numpy, arrays = load_numpy(), self._arrays
        rows = numpy.asarray(observations, dtype=numpy.float32)
        length = len(arrays["mean"])
        if rows.ndim != 2 or rows.shape[1] != length:
            raise UsageError(f"observations must be rows of {length} numbers, not an array of shape {rows.shape}")
        if not numpy.isfinite(rows).all():
            raise UsageError("an observation has a number that is not finite")
        with numpy.errstate(over="ignore", invalid="ignore"):
            hidden = numpy.tanh((rows - arrays["mean"]) / arrays["scale"] @ arrays["first"].T + arrays["first_bias"])
        encoded = hidden @ arrays["second"].T + arrays["second_bias"]
        if not numpy.isfinite(encoded).all():
            raise UsageError("an observation has a number that is too large for the encoder")
        numbers: Any = (encoded @ arrays["centroids"].T).argmax(axis=1)
        return numbers

    def text(self, observation: Any) -> str:
        """Returns the abstraction of an observation in words.

        Args:
            observation: one, a list of numbers.

        Raises:
            UsageError: as for `numbers`.
        """
        return self._text(int(self.numbers([observation])[0]))

    def _text(self, number: int) -> str:
        return f"situation {number} of {self.name}"

    def __call__(self, text: str) -> Sequence[float]:
        """Returns the centroid of a text that `text` has returned, of `DIMENSION` numbers.

        Args:
            text: the text of a situation.

        Raises:
            UsageError: it is none of these symbols.
        """
        number = text.split(" ")[1] if text.startswith("situation ") else ""
        if not number.isdigit() or int(number) >= self.count or text != self._text(int(number)):
            raise UsageError(f"{text[:80]!r} is no situation of {self.name}: give what Symbols.text returns")
        vector: list[float] = self._arrays["centroids"][int(number)].tolist()
        return vector

    def save(self, path: str | Path) -> None:
        """Writes the encoder and its centroids.

        Args:
            path: the file, of numpy's format npz.
        """
        with open(path, "wb") as file:
            load_numpy().savez(file, **self._arrays)

    @classmethod
    def load(cls, path: str | Path) -> Symbols:
        """Returns symbols that were saved.

        Args:
            path: the file.

        Raises:
            UsageError: it is not there, or it holds no symbols.
        """
        try:
            with load_numpy().load(path, allow_pickle=False) as file:
                return cls(dict(file))
        except (OSError, EOFError, BadZipFile, ValueError, TypeError, AttributeError, KeyError, UsageError) as error:
            raise UsageError(f"{path} holds no symbols, as Symbols.save writes them: {error}") from None


def _check_pairs(pairs: Sequence[Pair], count: int) -> None:
    """Raises UsageError for pairs of which no encoder with so many centroids can be learned."""
    if {bool(pair.same) for pair in pairs} != {True, False}:
        raise UsageError("pairs of both labels are needed, of the same situation and of different ones")
    lengths = {len(each) for pair in pairs for each in pair[:2]}
    if len(lengths) > 1:
        raise UsageError(f"observations must be of one length; the pairs' have {sorted(lengths)}")
    if not 1 <= count <= 2 * len(pairs):
        raise UsageError(f"of {len(pairs)} pairs, 1 to {2 * len(pairs)} symbols can be made, not {count}")


def _train(encoder: Any, observations: Any, labels: Any, margin: float, steps: int) -> None:
    """Trains an encoder with pairs.

    Args:
        encoder: the encoder.
        observations: the first ones of all pairs, and then the second ones, a row each.
        labels: the pairs' labels: 1 for the same situation, else -1.
        margin, steps: see `Symbols.learn`.
    """
    import torch

    loss = torch.nn.CosineEmbeddingLoss(margin=margin)
    optimiser = torch.optim.Adam(encoder.parameters(), lr=0.01)
    first, second = observations[: len(labels)], observations[len(labels) :]
    for _ in range(steps):
        optimiser.zero_grad()
        loss(encoder(first), encoder(second), labels).backward()
        optimiser.step()


def _centroids(encoded: Any, centroids: Any) -> Any:
    """Returns the centroids of vectors of length 1 by k-means on the sphere, which begins with those given."""
    import torch

    for _ in range(50):
        nearest = (encoded @ centroids.T).argmax(1)
        sums = torch.zeros_like(centroids).index_add_(0, nearest, encoded)
        has_members = sums.norm(dim=1, keepdim=True) > 0  # one that nothing is nearest to stays where it is
        centroids = torch.where(has_members, torch.nn.functional.normalize(sums), centroids)
    return centroids
