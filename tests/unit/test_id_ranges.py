"""Ranges of users: nobody has another's, in whichever process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tvsnap.images import UID_BASE, UID_COUNT
from tvsnap.sandboxes.local import id_ranges
from tvsnap.sandboxes.local.id_ranges import IdRanges

TAKE_ALL = """
import sys
from pathlib import Path
from tvsnap.sandboxes.local import id_ranges
id_ranges.LOCKS, id_ranges.RANGES = Path(sys.argv[1]), int(sys.argv[2])
ranges = id_ranges.IdRanges()
while ranges.take():
    pass
print("all", flush=True)
sys.stdin.read()
"""
USUAL, FEW = id_ranges.RANGES, 20


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with ranges for twenty sandboxes."""
    monkeypatch.setattr(id_ranges, "LOCKS", tmp_path / "ids")
    monkeypatch.setattr(id_ranges, "RANGES", FEW)


def test_there_are_some_thousands_and_none_is_that_of_files_on_disk() -> None:
    ranges = IdRanges()
    taken = [ranges.take() for _ in range(FEW)]
    assert {*taken} == {UID_BASE + (number + 1) * UID_COUNT for number in range(FEW)}
    assert USUAL > 4000
    assert UID_BASE + (USUAL + 1) * UID_COUNT <= 2**31


def test_nobody_gets_what_another_has() -> None:
    one, other = IdRanges(), IdRanges()
    taken = [ranges.take() for _ in range(FEW // 2) for ranges in (one, other)]
    assert len({*taken}) == FEW
    assert None not in taken
    assert (one.take(), other.take()) == (None, None)
    assert taken[1]
    other.give_back(taken[1])
    assert one.take() == taken[1]
    assert other.take() is None
    one.close()
    assert {other.take() for _ in range(FEW // 2 + 1)} == {*taken[::2], taken[1]}


def test_what_a_killed_process_had_is_free_again(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TAKE_ALL, str(tmp_path / "ids"), str(FEW)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "all\n"
        ranges = IdRanges()
        assert ranges.take() is None
        process.kill()
    assert ranges.take()
