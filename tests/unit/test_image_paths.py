"""Paths inside an image stay inside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.rootfs import make_directories, resolve_inside


class TestPathsInside:
    def test_links_stay_inside(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        (root / "usr/lib").mkdir(parents=True)
        (root / "lib").symlink_to("usr/lib")
        (root / "absolute").symlink_to("/usr")
        (root / "up").symlink_to("../../../../usr")
        assert resolve_inside(root, "/lib/a") == root / "usr/lib/a"
        assert resolve_inside(root, "absolute/lib/a") == root / "usr/lib/a"
        assert resolve_inside(root, "up/lib/a") == root / "usr/lib/a"
        assert resolve_inside(root, "lib") == root / "lib"
        assert resolve_inside(root, "lib", follow=True) == root / "usr/lib"
        assert resolve_inside(root, "/") == resolve_inside(root, ".") == root

    def test_refused(self, tmp_path: Path) -> None:
        (tmp_path / "loop").symlink_to("loop")
        with pytest.raises(BuildStepFailed, match="leads out of the image"):
            resolve_inside(tmp_path, "a/../b")
        with pytest.raises(BuildStepFailed, match="round in a circle"):
            resolve_inside(tmp_path, "loop/a")

    def test_something_in_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(BuildStepFailed, match="could not make the directory file/a: something else is in its"):
            make_directories(tmp_path, "file/a", os.getuid())
