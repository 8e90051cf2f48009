"""The search for the entry of the most similar state."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from tvsnap import UsageError
from tvsnap.plugins.priors.embedding import load_numpy
from tvsnap.plugins.priors.neighbours import Neighbours
from tvsnap.plugins.priors.prior import Match
from tvsnap.plugins.priors.store import Question, Store

if TYPE_CHECKING:
    from tvsnap.plugins.priors.embedding import Vector

MOST_INDICES = 1024
"""Questions with vectors in memory, at most."""


class SimilarStates:
    """The vectors of the states of each question, in memory. Thread-safe."""

    def __init__(self, store: Store, embedder: str) -> None:
        """
        Args:
            store: the file.
            embedder: the name of the embedder that made the vectors.
        """
        self._store = store
        self._embedder = embedder
        self._lock = threading.Lock()
        self._indices: OrderedDict[int, Neighbours] = OrderedDict()

    def nearest(self, question: Question, vector: Vector) -> Match | None:
        """Returns the entry of the most similar state of the same goal and actions; None if there is no entry.

        Args:
            question: the question.
            vector: the vector of its state.

        Raises:
            UsageError: the file has vectors of another length by this embedder.
            TvsnapError: the file cannot be used.
        """
        number = self._store.question(question)
        if number is None:
            return None
        with self._lock:
            index = self._index(number, len(vector))
            while ids := index.nearest(vector):
                there = self._store.entries(ids, question)
                for id in set(ids) - {entry.id for entry, _ in there}:
                    index.remove(id)  # it was evicted
                if there:
                    break
            else:
                return None
        cosines = [float(_unpacked(packed) @ vector) for _, packed in there]
        best = max(range(len(there)), key=cosines.__getitem__)
        return Match(there[best][0], min(1.0, cosines[best]), near=True)

    def _index(self, number: int, dimension: int) -> Neighbours:
        """Returns the vectors of a question, with those that other processes have added."""
        index = self._indices.get(number)
        if index is None:
            index = self._indices[number] = Neighbours(dimension)
            if len(self._indices) > MOST_INDICES:
                self._indices.popitem(last=False)
        self._indices.move_to_end(number)
        for batch in self._store.vectors(number, self._embedder, index.latest):
            rows = [(id, packed) for id, packed in batch if len(packed) % 2 == 0]  # others are damaged
            vectors = [_unpacked(packed) for _, packed in rows]
            if any(len(each) != dimension for each in vectors):
                raise UsageError(
                    f"the embedder {self._embedder} returned {dimension} numbers, and more or fewer before: "
                    "give it another name when its model changes"
                )
            index.add([id for id, _ in rows], vectors)
        return index


def packed(vector: Vector) -> bytes:
    """Returns a vector as the file has it: numbers of 16 bits."""
    return vector.astype("<f2").tobytes()


def _unpacked(data: bytes) -> Vector:
    numpy = load_numpy()
    vector: Vector = numpy.frombuffer(data, dtype="<f2").astype(numpy.float32)
    return vector
