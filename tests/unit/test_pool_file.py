"""The file that holds the pool of snapshots: who may read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tvsnap.model.errors import MachineLacks
from tvsnap.sandboxes.local.storage import loop_device, pool_file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0, 0o022, 0o277])
def test_it_is_its_owners_only_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int) -> None:
    maker = tmp_path / "mkfs.btrfs"
    maker.write_text(f'#!/bin/sh\nfor file; do :; done\nstat -c %a "$file" > {tmp_path}/seen\n')
    maker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    image = tmp_path / "pool.btrfs"
    image.with_suffix(".new").touch(mode=0o644)  # what a killed process left
    before = os.umask(mask)
    try:
        pool_file.make_filesystem(image)
    finally:
        os.umask(before)
    assert (tmp_path / "seen").read_text() == "600\n"
    assert mode(image) == 0o600
    assert image.stat().st_size == pool_file.POOL_BYTES


def test_one_of_an_older_version_becomes_its_owners_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def attach(image: Path) -> tuple[int, str]:
        assert mode(image) == 0o600
        raise MachineLacks("no loop device")

    monkeypatch.setattr(os, "access", lambda *_: True)
    monkeypatch.setattr(loop_device, "attach", attach)
    image = tmp_path / "pool.btrfs"
    image.touch()
    image.chmod(0o644)
    with pytest.raises(MachineLacks, match="no loop device"):
        pool_file.PoolFile(image)
    assert mode(image) == 0o600
