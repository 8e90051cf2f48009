"""The times of files that were changed since a moment are found, and set for the same files elsewhere."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from tvsnap.graph.rows import pack_times, unpack_times
from tvsnap.sandboxes.file_times import changed_since, file_time, set_again
from tvsnap.sandboxes.kernel import paths
from tvsnap.sandboxes.looks.observing import walk

HOUR = 3600 * 10**9


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A directory with an old file, made more than a tick of the kernel's clock ago."""
    top = tmp_path / "top"
    (top / "d").mkdir(parents=True)
    (top / "old").write_text("old")
    time.sleep(0.05)
    return top


def test_what_was_changed_is_found(top: Path) -> None:
    """Whatever time it was given: a relative one, whole seconds, one of years ago."""
    moment = file_time()
    (top / "new").write_text("new")
    (top / "dated").write_text("dated")
    os.utime(top / "dated", ns=(7, HOUR))
    (top / "d" / "link").symlink_to("/etc/passwd")
    (top / "tmp").mkdir()
    (top / "tmp").chmod(0o1777)
    found = changed_since(moment, walk(top))
    assert set(found) == {"/", "/d", "/d/link", "/new", "/dated"}  # /tmp changes when files merely come and go in it
    assert found["/dated"] == HOUR
    assert found["/new"] == (top / "new").stat().st_mtime_ns


def test_they_are_set_elsewhere(top: Path) -> None:
    outside = Path("/etc/passwd").stat().st_mtime_ns
    moment = file_time()
    for name in ("one", "two", "d/three"):
        (top / name).write_text(name)
    os.utime(top / "one", ns=(7, 2 * HOUR + 1))
    os.utime(top / "d/three", (7, 3600))
    (top / "link").symlink_to("/etc/passwd")
    wanted = changed_since(moment, walk(top))
    other = top.parent / "other"
    shutil.copytree(top, other, symlinks=True)
    for path in other.rglob("*"):
        os.utime(path, ns=(7, 5 * HOUR), follow_symlinks=False)
    (other / "two").unlink()
    with paths.directory(other) as root:
        set_again(root, {**wanted, "/link/x": HOUR, "/gone/x": HOUR})
    for name in ("one", "d/three", "link", "d", "."):
        about = (other / name).lstat()
        assert about.st_mtime_ns == (top / name).lstat().st_mtime_ns, name
        assert about.st_atime_ns == 7 or (other / name).is_dir()
    assert (other / "old").stat().st_mtime_ns == 5 * HOUR
    assert Path("/etc/passwd").stat().st_mtime_ns == outside


def test_what_was_written_at_once_is_found_too(top: Path) -> None:
    """The kernel dates files by a clock that lags behind."""
    for _ in range(50):
        moment = file_time()
        (top / "f").write_text("f")
        assert "/f" in changed_since(moment, walk(top))


def test_they_can_be_stored() -> None:
    times = {"/a b": 1, os.fsdecode(b"/\xff\n"): 10**19}
    assert unpack_times(pack_times(times)) == times
    assert unpack_times(pack_times({})) == {}
    assert unpack_times(None) is None
    assert unpack_times(b"damaged") is None
