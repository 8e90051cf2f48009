"""What makes a layer of the Docker Engine distinct cannot be written: whose fault is that?"""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from tvsnap.model.errors import NotCheckpointable
from tvsnap.plugins.docker import files


@pytest.mark.parametrize(("number", "raised"), [(errno.ENOSPC, OSError), (errno.EPERM, NotCheckpointable)])
def test_a_full_disk_is_no_property_of_a_state(
    monkeypatch: pytest.MonkeyPatch, number: int, raised: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, "")

    monkeypatch.setattr(files, "opened", fail)
    nowhere: Any = SimpleNamespace(_root=lambda: "/")
    unfinished: Any = SimpleNamespace(id="1-a.b")
    with pytest.raises(raised):
        files.OuterFiles.distinguish(nowhere, unfinished)
