"""What may happen by itself in a sandbox, in words."""

from __future__ import annotations

import math
import time

from tvsnap.sandboxes.processes.activity import Unrest, told


def test_what_is_the_same_is_told_once_with_its_number() -> None:
    found = [Unrest(0, what, left) for left, what in enumerate("abbcdde")]
    assert told(found, time.monotonic()) == ("a; b (2 times); c; 3 more", 0)
    assert told(found[:1], 0.0) == ("a", 0)


def test_nothing_is_told_of_nothing() -> None:
    assert told([], 0.0) == (None, math.inf)
