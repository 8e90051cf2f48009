"""Trees of files that are packed and made again: everything that a sandbox's files can be, and lists that lie."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tvsnap.model.errors import InfrastructureError
from tvsnap.model.images import UID_BASE
from tvsnap.plugins.object_store import ObjectStore
from tvsnap.plugins.object_store.store import PIECE
from tvsnap.plugins.object_store.trees import OF_ITS_OWN, pack_tree, unpack_tree

TIME = 1_700_000_000_123_456_789


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(str(tmp_path / "store"), writes=True)


def _made(root: Path) -> None:
    root.mkdir()
    (root / "deep/er").mkdir(parents=True)
    for number in range(50):
        (root / f"deep/small-{number}").write_bytes(os.urandom(number * 37))
    (root / "large").write_bytes(os.urandom(OF_ITS_OWN + 5))
    (root / "several pieces").write_bytes(os.urandom(2 * PIECE + 7))
    with open(root / "sparse", "wb") as file:
        file.seek(3 * PIECE)
        file.write(b"end")
        file.truncate(4 * PIECE)
    os.link(root / "large", root / "deep/linked")
    (root / "link").symlink_to("../../../etc/passwd")
    os.link(root / "link", root / "deep/linked link", follow_symlinks=False)
    os.mkfifo(root / "fifo")
    os.mknod(root / "deleted", stat.S_IFCHR, 0)
    (root / "empty").touch()
    (root / os.fsdecode(b"not \xff utf-8\nname")).write_text("odd")
    (root / "deep/program").write_text("#!/bin/sh\n")
    os.setxattr(root / "deep/er", "trusted.overlay.opaque", b"y")
    os.setxattr(root / "deep/er", "trusted.overlay.origin", b"of this file system")
    os.setxattr(root / "large", "user.note", b"\0\1")
    for number, path in enumerate(sorted(root.rglob("*"))):
        os.chown(path, UID_BASE + number, UID_BASE + 5, follow_symlinks=False)
    os.chown(root, UID_BASE, UID_BASE)
    (root / "deep/program").chmod(0o4755)
    (root / "deep").chmod(0o1700)
    for path in [*root.rglob("*"), root]:
        os.utime(path, ns=(TIME, TIME), follow_symlinks=False)


def _seen(root: Path) -> dict[str, Any]:
    """Everything about a tree that a sandbox could see."""
    found: dict[str, Any] = {}
    identities: dict[int, str] = {}
    for path in [root, *sorted(root.rglob("*"))]:
        about = path.lstat()
        name = os.path.relpath(path, root)
        first = identities.setdefault(about.st_ino, name)
        attributes = {
            one: os.getxattr(path, one, follow_symlinks=False)
            for one in os.listxattr(path, follow_symlinks=False)
            if one != "trusted.overlay.origin"
        }
        what: Any = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else about.st_rdev
        owner = (about.st_uid, about.st_gid)
        found[name] = (oct(about.st_mode), owner, about.st_mtime_ns, attributes, what, first, about.st_nlink)
    return found


def test_a_tree_is_made_again_as_it_was(store: ObjectStore, tmp_path: Path) -> None:
    _made(tmp_path / "tree")
    told: list[int] = []
    listed = pack_tree(store, tmp_path / "tree", told.append)
    (tmp_path / "again").mkdir()
    written: list[int] = []
    unpack_tree(store, listed, tmp_path / "again", written.append)
    assert _seen(tmp_path / "again") == _seen(tmp_path / "tree")
    assert sum(told) == sum(written) == sum(file.stat().st_size for file in _regular(tmp_path / "tree"))
    assert (tmp_path / "again/sparse").stat().st_blocks * 512 < PIECE, "holes stay holes"
    assert store.fetched_bytes < 1.1 * store.sent_bytes, "no blob is fetched twice"


def _regular(root: Path) -> list[Path]:
    """The regular files of a tree, those with several names once."""
    found = {path.stat().st_ino: path for path in root.rglob("*") if path.is_file() and not path.is_symlink()}
    return list(found.values())


def test_what_trees_share_is_stored_once(store: ObjectStore, tmp_path: Path) -> None:
    _made(tmp_path / "tree")
    pack_tree(store, tmp_path / "tree")
    before = store.sent_bytes
    (tmp_path / "tree/added").write_text("x")
    os.chown(tmp_path / "tree/added", UID_BASE, UID_BASE)
    pack_tree(store, tmp_path / "tree")
    assert store.sent_bytes - before < before / 20


OWNER = [UID_BASE, UID_BASE]
TOP = {"path": "", "mode": stat.S_IFDIR | 0o755, "mtime": TIME, "owner": OWNER}
FILE = {"mode": stat.S_IFREG | 0o644, "mtime": TIME, "owner": OWNER, "size": 0, "contents": []}
LINK = {"mode": stat.S_IFLNK | 0o777, "mtime": TIME, "owner": OWNER}


@pytest.mark.parametrize(
    "entries",
    [
        [{**FILE, "path": ""}],
        [TOP, {**FILE, "path": "../escaped"}],
        [TOP, {**FILE, "path": "/escaped"}],
        [TOP, {**FILE, "path": "a/../../escaped"}],
        [TOP, {**FILE, "path": ".."}],
        [TOP, {**FILE, "path": "a\0b"}],
        [TOP, {**LINK, "path": "out", "target": "{outside}"}, {**FILE, "path": "out/escaped"}],
        [TOP, {**LINK, "path": "out", "target": "{outside}"}, {"path": "in", "link": "out/victim"}],
        [TOP, {**LINK, "path": "out", "target": "{outside}/escaped"}, {**FILE, "path": "out"}],
        [TOP, {"path": "in", "link": "../outside/victim"}],
        [TOP, {**FILE, "path": "a", "owner": [12, 12]}],
        [TOP, {**FILE, "path": "a", "attributes": {"security.evil": "00"}}],
        [TOP, {**FILE, "path": "a", "attributes": {f"user.{n}": "00" for n in range(100)}}],
        [TOP, {**FILE, "path": "a", "mode": stat.S_IFBLK | 0o666}],
        [TOP, {**FILE, "path": "a", "size": 5}],
        [TOP, {**FILE, "path": "a", "size": 5, "contents": [["{blob}", 0, 500]]}],
        [TOP, {**FILE, "path": "a", "size": 5, "contents": [["{blob}", -5, 5]]}],
        [TOP, {**FILE, "path": "a", "size": 5, "contents": [["../../x", 0, 5]]}],
        [TOP, {**FILE, "path": "a"}, {**FILE, "path": "a"}],
        [TOP, {"path": "a"}],
        [TOP, []],
        [5],
    ],
)
def test_a_list_that_lies_leads_nowhere(store: ObjectStore, tmp_path: Path, entries: list[Any]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("theirs")
    before = (outside / "victim").stat()
    blob = store.put(b"some bytes")
    text = "\n".join(map(json.dumps, entries)).replace("{outside}", str(outside)).replace("{blob}", blob)
    listed = [store.put(text.encode())]
    (tmp_path / "made").mkdir()
    with pytest.raises(InfrastructureError, match=r"makes no sense|cannot be written"):
        unpack_tree(store, listed, tmp_path / "made")
    assert os.listdir(outside) == ["victim"]
    assert (outside / "victim").stat() == before
    assert not (tmp_path / "escaped").exists()
    assert not Path("/escaped").exists()
