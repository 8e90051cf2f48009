"""Room that a data directory keeps for a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvsnap.host import disk_reserve
from tvsnap.host.disk import DiskSpace
from tvsnap.model.limits import MIB


def test_it_is_given_where_the_disk_is_full_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free, file = 1 << 40, tmp_path / disk_reserve.FILE
    monkeypatch.setattr(DiskSpace, "on", lambda _, where: DiskSpace(where, free, 0))
    disk_reserve.keep(tmp_path)
    assert file.stat().st_blocks * 512 >= disk_reserve.SIZE
    with disk_reserve.lent(tmp_path):
        assert file.exists(), "it is not needed"
    free = MIB
    with disk_reserve.lent(tmp_path):
        assert not file.exists()
        free = 1 << 40
    assert file.exists()


def test_it_is_taken_back_though_the_disk_is_still_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else somebody else takes that room, and the next deletion has none."""
    file = tmp_path / disk_reserve.FILE
    monkeypatch.setattr(DiskSpace, "on", lambda _, where: DiskSpace(where, MIB, 0))
    with disk_reserve.lent(tmp_path):
        pass
    assert not file.exists(), "there was nothing to lend"
    file.write_bytes(b"")
    with disk_reserve.lent(tmp_path):
        assert not file.exists()
    assert file.stat().st_blocks * 512 >= disk_reserve.SIZE


def test_a_disk_without_room_has_none_to_spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskSpace, "on", lambda _, where: DiskSpace(where, disk_reserve.SIZE, 0))
    disk_reserve.keep(tmp_path)
    assert list(tmp_path.iterdir()) == []
