"""Room that a data directory keeps for a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvsnap.host import spare
from tvsnap.host.disk import DiskSpace
from tvsnap.model.limits import MIB


def test_it_is_given_where_the_disk_is_full_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free, file = 1 << 40, tmp_path / spare.FILE
    monkeypatch.setattr(DiskSpace, "on", lambda _, where: DiskSpace(where, free, 0))
    spare.keep(tmp_path)
    assert file.stat().st_blocks * 512 >= spare.SIZE
    with spare.lent(tmp_path):
        assert file.exists(), "it is not needed"
    free = MIB
    with spare.lent(tmp_path):
        assert not file.exists()
        free = 1 << 40
    assert file.exists()


def test_a_disk_without_room_has_none_to_spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskSpace, "on", lambda _, where: DiskSpace(where, spare.SIZE, 0))
    spare.keep(tmp_path)
    assert list(tmp_path.iterdir()) == []
