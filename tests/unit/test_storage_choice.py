from __future__ import annotations

from pathlib import Path

import pytest

from tvsnap.model.errors import UsageError
from tvsnap.sandboxes.local.storage.layers import open_storage


def test_a_storage_that_there_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVSNAP_STORAGE", "zfs")
    with pytest.raises(UsageError, match="TVSNAP_STORAGE is 'zfs'; it must be btrfs"):
        open_storage(tmp_path)
