"""What tests of images share: a store, and a small system of programs of this machine."""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image_lab import add_program
from tvsnap.host.owners import Owner
from tvsnap.images import ImageStore
from tvsnap.sandboxes.local import LocalBackend


@pytest.fixture
def store(tmp_path: Path, small_system: Path, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    """An empty store, whose images may start from what tests made."""
    build = functools.partialmethod(ImageStore.build, allow=(tmp_path, small_system))
    monkeypatch.setattr(ImageStore, "build", build)
    return ImageStore(tmp_path / "home")


@pytest.fixture
def backend(tvsnap_home: Path) -> Iterator[LocalBackend]:
    """A local backend of an owner of its own, on the session's data directory."""
    owner = Owner(tvsnap_home)
    with contextlib.closing(owner), contextlib.closing(LocalBackend(tvsnap_home, owner.id)) as backend:
        yield backend


@pytest.fixture(scope="session")
def small_system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root filesystem with a shell and a few programs of this machine: enough to run steps in."""
    root = tmp_path_factory.mktemp("small") / "rootfs"
    for name in ("sh", "cat", "chmod", "id", "ln", "ls", "mkdir", "mknod", "sleep", "touch"):
        program = shutil.which(name)
        assert program is not None
        add_program(root, program, f"bin/{name}")
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1001::/home/agent:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nagents:x:1001:\n")
    return root
