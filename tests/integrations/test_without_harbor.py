"""What needs no Harbor: the message where it is missing, and archives that are the same whenever what they hold is."""

from __future__ import annotations

import importlib
import importlib.util
import os
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from tvsnap.integrations import transfers


@pytest.mark.skipif(importlib.util.find_spec("harbor") is not None, reason="Harbor is installed in this environment")
def test_where_harbor_is_missing_the_message_says_how_to_get_it() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"needs Harbor.*pip install 'tvsnap\[harbor\]' with Python 3.12"):
        importlib.import_module("tvsnap.integrations.harbor")


def _make(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "run.sh").write_text("echo\n")
    (folder / "run.sh").chmod(0o750)
    (folder / "link").symlink_to("run.sh")
    os.mkfifo(folder / "pipe")
    for path in (folder / "run.sh", folder / "link"):
        os.utime(path, (1e9, 1e9), follow_symlinks=False)
    return folder


def test_an_archive_does_not_tell_when_or_by_whom_it_was_made(tmp_path: Path) -> None:
    one = transfers.pack(_make(tmp_path / "one"))
    os.chown(_make(tmp_path / "two") / "run.sh", os.getuid(), os.getgid())
    assert transfers.pack(tmp_path / "two") == one
    with tarfile.open(fileobj=BytesIO(one)) as archive:
        members = {member.name: member for member in archive}
    assert set(members) == {".", "./sub", "./run.sh", "./link"}, "a pipe holds nothing"
    assert (members["./run.sh"].mode, members["./run.sh"].mtime) == (0o750, int(1e9))
    assert (members["."].mtime, members["./sub"].mtime) == (int(1e9), 0)
    (tmp_path / "two/run.sh").chmod(0o700)
    assert transfers.pack(tmp_path / "two") != one
