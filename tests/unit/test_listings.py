"""A listing of files tells the same as a walk, and how it differs from another one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tvsnap.model.errors import InfrastructureError
from tvsnap.sandboxes.observing import Listing, listing, walk


def test_a_listing_has_what_a_walk_yields(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a line\nand a \xe9").write_text("x")
    os.symlink("nowhere", os.path.join(os.fsencode(tmp_path), b"\xff"))
    found, walked = listing(tmp_path), list(walk(tmp_path))
    assert [*found] == [entry.path for entry in walked]
    assert [*found.values()] == walked
    assert len(found) == 4
    assert found["/\udcff"].path == "/\udcff"
    assert found.get("/none") is None


def test_listings_differ_by_what_was_changed_made_and_deleted(tmp_path: Path) -> None:
    for name in ("changed", "deleted", "kept"):
        (tmp_path / name).write_text(name)
    before = listing(tmp_path)
    assert listing(tmp_path).differing_from(before) == []
    (tmp_path / "changed").chmod(0o600)
    (tmp_path / "deleted").unlink()
    (tmp_path / "made").write_text("x")
    after = listing(tmp_path)
    assert [entry.path for entry in after.differing_from(before)] == ["/", "/changed", "/made"]
    assert [entry.path for entry in before.differing_from(after)] == ["/", "/changed", "/deleted"]
    assert after.without(before) == {"/deleted"}
    assert before.without(after) == {"/made"}


def test_what_is_no_listing_is_refused() -> None:
    with pytest.raises(InfrastructureError, match="none"):
        Listing(b"/a\0what is this\0").differing_from(Listing(b""))
