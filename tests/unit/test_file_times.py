"""Files that calls wrote get the times of when the calls were recorded, in the same order."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tvsnap.sandboxes import paths
from tvsnap.sandboxes.observing import walk
from tvsnap.sandboxes.redating import NS, Span, file_time, recorded_span, redate

HOUR = 3600 * NS


def test_moments_keep_their_order() -> None:
    one, other = Span(10 * NS, 12 * NS), Span(100 * NS, 101 * NS)
    assert one.move(one.since, other) == other.since
    assert one.move(one.until, other) == other.until
    assert one.move(11 * NS, other) == 100 * NS + NS // 2
    moments = range(one.since, one.until, NS // 7)
    moved = [one.move(moment, other) for moment in moments]
    assert moved == sorted(moved)
    assert Span(5, 5).move(5, other) == other.since


@pytest.mark.parametrize("created", [1000.0, 999.9, 0.0])
@pytest.mark.parametrize("duration", [0.0, 0.01, 5.0])
def test_each_call_comes_after_the_one_before(created: float, duration: float) -> None:
    """Whatever was recorded: a call may have been recorded anew since the next one was."""
    earlier = 1000 * NS
    span = recorded_span(created, duration, earlier)
    assert earlier < span.since <= span.until
    assert recorded_span(2000.0, 1.0, earlier) == Span(1999 * NS, 2000 * NS)


def test_what_was_written_in_a_span_is_moved(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "d").mkdir(parents=True)
    times = {"old": HOUR, "one": 2 * HOUR, "d/two": 2 * HOUR + NS, "d/set": 3 * HOUR}
    for name, moment in times.items():
        (top / name).write_text(name)
        os.utime(top / name, ns=(7, moment))
    (top / "link").symlink_to("/etc/passwd")
    os.utime(top / "link", ns=(7, 2 * HOUR), follow_symlinks=False)
    (top / "tmp").mkdir()
    (top / "tmp").chmod(0o1777)
    for name in ("d", "tmp"):
        os.utime(top / name, ns=(7, 2 * HOUR + NS))
    outside = Path("/etc/passwd").stat().st_mtime_ns
    with paths.directory(top) as root:
        redate(root, list(walk(top)), Span(2 * HOUR, 2 * HOUR + 2 * NS), Span(HOUR + 10 * NS, HOUR + 12 * NS))
    found = {name: (top / name).lstat().st_mtime_ns for name in (*times, "link", "d", "tmp")}
    moved = {name: round(moment / (NS / 10)) for name, moment in found.items()}
    assert moved == {
        name: round(moment / (NS / 10))
        for name, moment in {
            "old": HOUR,
            "one": HOUR + 10 * NS,
            "d/two": HOUR + 11 * NS,
            "d/set": 3 * HOUR,
            "link": HOUR + 10 * NS,
            "d": HOUR + 11 * NS,
            "tmp": 2 * HOUR + NS,  # files come and go in it with a mere look
        }.items()
    }
    assert (top / "one").lstat().st_atime_ns == 7
    assert Path("/etc/passwd").stat().st_mtime_ns == outside


def test_what_was_written_at_once_is_moved_too(tmp_path: Path) -> None:
    """The kernel dates files by a clock that lags behind."""
    for _ in range(50):
        began = file_time()
        (tmp_path / "f").write_text("f")
        with paths.directory(tmp_path) as root:
            redate(root, list(walk(tmp_path)), Span(began, time.time_ns()), Span(NS, 2 * NS))
        assert (tmp_path / "f").lstat().st_mtime_ns <= 2 * NS
