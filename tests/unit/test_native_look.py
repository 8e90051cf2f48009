"""What the native library tells of trees of files, beside what Python finds itself."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tvsnap.host.libc import closing
from tvsnap.sandboxes import sealing
from tvsnap.sandboxes.looks import digest, native_look, observing

MOST = 64 << 10
"""Bytes of a small file."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "b/deep").mkdir(parents=True)
    (tmp_path / "a").write_bytes(b"contents")
    (tmp_path / "b-").write_bytes(b"")
    (tmp_path / "b/file").write_bytes(bytes(MOST))
    (tmp_path / "b/deep/large").write_bytes(b"x" * (MOST + 1))
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / os.fsdecode(b"\xff\n")).write_bytes(b"odd")
    return tmp_path


def records(directory: Path) -> Iterator[bytes]:
    """Yields the records that a seal is made of."""
    waiting = [b""]
    yield record(b"", directory.lstat())
    while waiting:
        above = waiting.pop()
        for name in sorted(os.listdir(os.fsencode(directory) + above)):
            path = above + b"/" + name
            about = os.lstat(os.fsencode(directory) + path)
            yield record(path, about)
            if os.path.isdir(os.fsencode(directory) + path):
                waiting.append(path)


def record(path: bytes, about: os.stat_result) -> bytes:
    fields = (about.st_mode, about.st_uid, about.st_gid, about.st_size, about.st_ino, about.st_rdev)
    return b"%b\0%b\0" % (path, " ".join(map(str, [*fields, about.st_mtime_ns, about.st_ctime_ns])).encode())


def test_a_seal_is_made_of_all_paths(tree: Path) -> None:
    files = [path for path in tree.rglob("*") if path.is_symlink() or not path.is_dir()]
    expected = sum(path.lstat().st_blocks * 512 for path in files), zlib.crc32(b"".join(records(tree)))
    assert sealing.seal(tree) == expected


def test_any_change_breaks_a_seal(tree: Path) -> None:
    changes = (
        lambda: (tree / "a").chmod(0o600),
        lambda: os.utime(tree / "b/deep/large", ns=(5, 5)),
        lambda: (tree / "b/deep/large").rename(tree / "b/deep/other"),
        lambda: (tree / "b/file").write_bytes(b"x"),
        lambda: (tree / "link").unlink(),
        lambda: os.chown(tree / "fifo", 5, 5),
        lambda: (tree / "b/deep/new").mkdir(),
    )
    seals = [sealing.seal(tree)[1]]
    for change in changes:
        change()
        seals.append(sealing.seal(tree)[1])
    assert len(set(seals)) == len(seals)


def test_a_tree_that_is_none(tree: Path) -> None:
    with pytest.raises(NotADirectoryError):
        sealing.seal(tree / "a")
    with pytest.raises(FileNotFoundError):
        sealing.seal(tree / "none")


def test_small_files_are_read_at_once(tree: Path) -> None:
    small = {"/a": b"contents", "/b-": b"", "/b/file": bytes(MOST), "/" + os.fsdecode(b"\xff\n"): b"odd"}
    others = ["/b/deep/large", "/link", "/fifo", "/b", "/none", "/link/x"]
    with closing(os.open(tree, os.O_RDONLY | os.O_DIRECTORY)) as root:
        found = list(native_look.contents(root, [*small, *others], MOST))
    for (path, data), file in zip(small.items(), found, strict=False):
        about = os.lstat(f"{tree}{path}")
        assert file == (data, about.st_mtime_ns, about.st_ctime_ns, 0)
    assert found[len(small) :] == [None] * len(others)


def test_no_files_are_read(tree: Path) -> None:
    with closing(os.open(tree, os.O_RDONLY | os.O_DIRECTORY)) as root:
        assert list(native_look.contents(root, [], MOST)) == []


def test_a_small_file_is_described_like_any_other(tree: Path) -> None:
    """The description of a file is part of digests that are compared with those of other versions of the library."""
    with (tree / "hole").open("wb") as file:
        file.truncate(5000)
    entries = [entry for entry in observing.walk(tree) if entry.path in ("/a", "/b-", "/b/file", "/hole")]
    with closing(os.open(tree, os.O_RDONLY | os.O_DIRECTORY)) as root:
        reader = digest._Reader(digest.Files(entries, tuple, root, 0, observing.ImageTree(), digest.Contents()))
        reader.read_small(entries)
        assert len(reader._small) == len(entries) == 4
        for entry in entries:
            assert reader._small[entry.path][0] == reader._read_one(entry)[0]
