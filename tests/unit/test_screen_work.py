"""Drawing a screen takes a bounded time, whatever a terminal was sent."""

from __future__ import annotations

import time

import pytest

from tvsnap.environments.screen import LARGEST, RENDERED, render
from tvsnap.model.observations import TerminalBytes

LONGEST = 2.0
"""Seconds of processor time; about 0.2 are needed."""


@pytest.mark.parametrize(
    "sequence", [b"\x1b[2K", b"\x1b[M", b"\n", b"\x1bc", b"\x1b[300X", b"\x1b[2K\x1b[M\n\x1bc"], ids=repr
)
def test_a_hostile_screen(sequence: bytes) -> None:
    data = b"x" + sequence * (RENDERED // len(sequence)) + b"\x1bcend"
    began = time.process_time()
    assert render(TerminalBytes(data, *LARGEST)) == "end\n"
    assert time.process_time() - began < LONGEST
