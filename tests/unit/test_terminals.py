"""A machine that has no pseudoterminal left for a sandbox: it is waited for, and the error tells the way out."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tvsnap.host.attempts import AttemptFailed
from tvsnap.sandboxes.local import terminals


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(terminals, "COUNTS", tmp_path)
    monkeypatch.setattr(terminals, "PATIENCE", 0.3)
    for name, number in {"nr": 3072, "max": 4096, "reserve": 1024}.items():
        (tmp_path / name).write_text(f"{number}\n")
    return tmp_path


def test_none_is_left(counts: Path) -> None:
    began = time.monotonic()
    with pytest.raises(AttemptFailed, match=r"3,072 are in use, of 4,096, .* raise .*/max") as error:
        terminals.await_one()
    assert error.value.machine
    assert time.monotonic() - began > 0.3


def test_one_is_given_back(counts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminals, "PATIENCE", 60.0)
    later = threading.Timer(0.2, lambda: (counts / "nr").write_text("3071\n"))
    later.start()
    terminals.await_one()
    later.join()


def test_a_machine_that_does_not_tell(counts: Path) -> None:
    (counts / "reserve").unlink()
    terminals.await_one()
