"""What may happen by itself in a sandbox, in words."""

from __future__ import annotations

import math
import time

import pytest

from tvsnap.sandboxes.looks import connections
from tvsnap.sandboxes.looks.activity import Unrest, told


def test_what_is_the_same_is_told_once_with_its_number() -> None:
    found = [Unrest(0, what, left) for left, what in enumerate("abbcdde")]
    assert told(found, time.monotonic()) == ("a; b (2 times); c; 3 more", 0)
    assert told(found[:1], 0.0) == ("a", 0)


def test_nothing_is_told_of_nothing() -> None:
    assert told([], 0.0) == (None, math.inf)


@pytest.mark.parametrize(
    ("stat", "listening", "may"),
    [
        ("TCP: inuse 0 orphan 0 tw 0 alloc 9 mem 1\n", 0, False),
        ("TCP: inuse 0 orphan 7 tw 0 alloc 9 mem 1\n", 0, False),  # of the machine
        ("TCP: inuse 2 orphan 7 tw 0 alloc 9 mem 1\nTCP6: inuse 1\n", 3, False),
        ("TCP: inuse 2 orphan 0 tw 0 alloc 9 mem 1\n", 1, True),
        ("TCP: inuse 0 orphan 0 tw 1 alloc 9 mem 1\n", 0, True),
        ("", 0, True),
    ],
)
def test_when_connections_are_looked_for(stat: str, listening: int, may: bool) -> None:
    assert connections.may_pass(stat.encode(), lambda: listening) is may
