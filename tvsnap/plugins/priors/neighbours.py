"""The vector that is nearest to a given one, among those of one question."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tvsnap.plugins.priors.embedding import load_numpy

if TYPE_CHECKING:
    from tvsnap.plugins.priors.embedding import Vector

EXHAUSTIVE = 4096
"""Up to so many vectors, all are compared: that takes less than a millisecond, and is exact."""
CANDIDATES = 8
"""Vectors that a search of the graph returns, to be compared exactly: the graph's own numbers have 8 bits."""
EXPANSION = 64
"""Vectors that a search of the graph, or for a new vector's place in it, keeps in view: fewer miss more."""


class Neighbours:
    """Vectors of length 1, by whole numbers. It is not thread-safe.

    Beyond `EXHAUSTIVE` vectors it uses a graph of usearch (HNSW), whose search takes a time that hardly depends on
    their number; if usearch is missing, all are compared.

    Attributes:
        latest: the largest number that was added; 0 before.
    """

    def __init__(self, dimension: int) -> None:
        self.latest = 0
        self._numpy = load_numpy()
        self._dimension = dimension
        self._ids: list[int] = []
        self._row_of: dict[int, int] = {}
        self._rows = self._numpy.empty((16, dimension), dtype=self._numpy.float32)
        self._graph: Any = None

    def __len__(self) -> int:
        return len(self._graph) if self._graph is not None else len(self._ids)

    def add(self, ids: Sequence[int], vectors: Sequence[Vector]) -> None:
        """Adds vectors, whose numbers are larger than those of all that were added before."""
        if not ids:
            return
        self.latest = ids[-1]
        if self._graph is None and len(self._ids) + len(ids) > EXHAUSTIVE and importlib.util.find_spec("usearch"):
            self._make_graph()
        if self._graph is not None:
            self._graph.add(self._numpy.asarray(ids, dtype=self._numpy.uint64), self._numpy.stack(vectors))
            return
        count = len(self._ids)
        if count + len(ids) > len(self._rows):
            larger = self._numpy.empty((2 * (count + len(ids)), self._dimension), dtype=self._numpy.float32)
            larger[:count] = self._rows[:count]
            self._rows = larger
        for offset, (number, vector) in enumerate(zip(ids, vectors, strict=True), count):
            self._rows[offset] = vector
            self._row_of[number] = offset
            self._ids.append(number)

    def remove(self, number: int) -> None:
        """Removes a vector, if it is there."""
        if self._graph is not None:
            self._graph.remove(number)
            return
        row = self._row_of.pop(number, None)
        if row is None:
            return
        last = self._ids.pop()
        if last != number:  # the last one takes its place
            self._rows[row] = self._rows[len(self._ids)]
            self._ids[row], self._row_of[last] = last, row

    def nearest(self, vector: Vector) -> list[int]:
        """Returns the numbers of those that may be nearest: one if all are compared, some if a graph is searched."""
        if not len(self):
            return []
        if self._graph is None:
            return [self._ids[int((self._rows[: len(self._ids)] @ vector).argmax())]]
        return [int(number) for number in self._graph.search(vector, CANDIDATES).keys]

    def _make_graph(self) -> None:
        from usearch.index import Index

        self._graph = Index(
            ndim=self._dimension, metric="cos", dtype="i8", expansion_add=EXPANSION, expansion_search=EXPANSION
        )
        if self._ids:
            self._graph.add(self._numpy.asarray(self._ids, dtype=self._numpy.uint64), self._rows[: len(self._ids)])
        self._ids, self._row_of, self._rows = [], {}, self._rows[:0]
