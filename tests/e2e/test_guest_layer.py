"""The layer with what each sandbox needs of ours is the same, whatever the mask of new files where it is made."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tvsnap.images import UID_BASE
from tvsnap.sandboxes.local.guest_layer import install

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to others")


def listing(layer: Path) -> dict[str, str]:
    found = {}
    for path in (layer, *layer.rglob("*")):
        about = path.lstat()
        assert (about.st_uid, about.st_gid) == (UID_BASE, UID_BASE)
        found[str(path.relative_to(layer))] = stat.filemode(about.st_mode)
    return found


@pytest.mark.parametrize("mask", [0, 0o077, 0o777])
def test_modes(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        found = listing(install(tmp_path / "guest", "someone"))
    finally:
        os.umask(before)
    assert found == listing(install(tmp_path / "other", "someone"))
    assert found["."] == found["run/tvsnap"] == found["dev"] == "drwxr-xr-x"
    assert found["dev/shm"] == "drwxrwxrwt"
    assert found["dev/null"] == "-rw-r--r--"
    assert found["run/tvsnap/init"] == "-rwxr-xr-x"
