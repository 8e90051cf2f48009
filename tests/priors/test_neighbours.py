"""The search for the nearest vector: exact for few, by a graph for many."""

from __future__ import annotations

import numpy
import pytest

from tvsnap.plugins.priors.neighbours import EXHAUSTIVE, Neighbours


def vectors(count: int, seed: int = 0) -> numpy.typing.NDArray[numpy.float32]:
    found = numpy.random.default_rng(seed).normal(size=(count, 32)).astype(numpy.float32)
    unit: numpy.typing.NDArray[numpy.float32] = found / numpy.linalg.norm(found, axis=1, keepdims=True)
    return unit


def test_few_are_compared_exactly_and_can_be_removed() -> None:
    rows, index = vectors(500), Neighbours(32)
    for number in range(0, 500, 7):
        index.add(list(range(number + 1, min(number + 8, 501))), list(rows[number : number + 7]))
    gone = set(range(1, 500, 3))
    for number in gone:
        index.remove(number)
        index.remove(number)
    left = [number for number in range(1, 501) if number not in gone]
    for query in vectors(50, seed=1):
        best = max(left, key=lambda number: float(rows[number - 1] @ query))
        assert index.nearest(query) == [best]
    for number in left:
        index.remove(number)
    assert index.nearest(rows[0]) == []


def test_many_are_searched_by_a_graph() -> None:
    pytest.importorskip("usearch", reason="usearch has no wheel for this Python")
    count = EXHAUSTIVE + 2000
    rows, index = vectors(count), Neighbours(32)
    for begin in range(0, count, 1000):
        index.add(list(range(begin + 1, min(begin + 1000, count) + 1)), list(rows[begin : begin + 1000]))
    assert len(index) == count
    probes = range(0, count, 97)
    right = sum(number + 1 in index.nearest(rows[number]) for number in probes)
    assert right >= 0.95 * len(probes)
    index.remove(1)
    assert 1 not in index.nearest(rows[0])
