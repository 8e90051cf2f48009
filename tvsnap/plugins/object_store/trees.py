"""Packs a tree of files into blobs of an object store, and makes it again from there.

A tree is a list of its entries, parents before what is in them, and the blobs with the contents of its files: large
files have blobs of their own, so that trees which share them share the blobs; small ones are put together in the order
of their paths. The list is stored as blobs, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvsnap.model.errors import InfrastructureError
from tvsnap.model.images import UID_BASE, UID_COUNT
from tvsnap.plugins.object_store.store import PIECE, ObjectStore

OF_ITS_OWN = 256 << 10
"""Bytes of a file from which on it has blobs of its own."""
_BLOCK = 4096
_LEFT_OUT = ("trusted.overlay.origin", "trusted.overlay.uuid", "security.selinux")
"""Attributes that mean something on one file system, or one host, only."""
_KEPT = ("user.", "trusted.overlay.", "security.capability", "system.posix_acl_")
"""Attributes that files of sandboxes and images may have."""
_MOST_ATTRIBUTES = 64
_KEPT_BLOBS = 16

Extents = list[list[Any]]
"""A place of bytes of a file: blob, offset, length."""


@dataclass(slots=True)
class _SmallFiles:
    """Small files that share a blob, until it is full."""

    store: ObjectStore
    data: bytearray
    waiting: list[Extents]

    def add(self, contents: bytes, extents: Extents) -> None:
        """Adds a file whose extents are completed once the blob is stored."""
        if len(self.data) + len(contents) > PIECE:
            self.flush()
        extents.append(["", len(self.data), len(contents)])
        self.waiting.append(extents)
        self.data += contents

    def flush(self) -> None:
        """Stores what there is."""
        if self.waiting:
            name = self.store.put(bytes(self.data))
            for extents in self.waiting:
                extents[-1][0] = name
        self.data, self.waiting = bytearray(), []


def pack_tree(store: ObjectStore, root: Path, progress: Callable[[int], object] = lambda _: None) -> list[str]:
    """Stores a tree that nobody writes to; returns the blobs of its list.

    Args:
        store: where.
        root: the tree.
        progress: is told how many bytes of contents were stored.

    Raises:
        InfrastructureError: part of it cannot be read, or the store fails.
    """
    entries: list[dict[str, Any]] = []
    small_files = _SmallFiles(store, bytearray(), [])
    linked: dict[tuple[int, int], str] = {}
    try:
        for path, about in _walk(os.fsencode(root)):
            where = os.fsdecode(path)
            full = os.fsencode(root) + b"/" + path if path else os.fsencode(root)
            entry: dict[str, Any] = {"path": where, "mode": about.st_mode, "mtime": about.st_mtime_ns}
            entry["owner"] = [about.st_uid, about.st_gid]
            identity = (about.st_dev, about.st_ino)
            if not stat.S_ISDIR(about.st_mode) and about.st_nlink > 1 and identity in linked:
                entries.append({"path": where, "link": linked[identity]})
                continue
            linked[identity] = where
            if attributes := _attributes(full):
                entry["attributes"] = attributes
            if stat.S_ISLNK(about.st_mode):
                entry["target"] = os.fsdecode(os.readlink(full))
            elif stat.S_ISREG(about.st_mode):
                entry["size"] = about.st_size
                extents: Extents = []
                entry["contents"] = extents
                _store_file(store, small_files, full, about.st_size, extents)
                progress(about.st_size)
            elif stat.S_ISCHR(about.st_mode) and about.st_rdev != 0:
                raise InfrastructureError(f"{where} is a device, and cannot be pushed")
            entries.append(entry)
        small_files.flush()
    except OSError as error:
        raise InfrastructureError(f"{root} cannot be read: {error}") from None
    text = "".join(json.dumps(entry) + "\n" for entry in entries).encode()
    return store.put_all(text[begin : begin + PIECE] for begin in range(0, len(text), PIECE))


def _store_file(store: ObjectStore, small_files: _SmallFiles, path: bytes, size: int, extents: Extents) -> None:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0) as file:
        if size < OF_ITS_OWN:
            contents = file.read(size) if size else b""
            if contents:
                small_files.add(contents, extents)
            return
        lengths: list[int] = []

        def pieces() -> Iterator[bytes]:
            while piece := file.read(PIECE):
                lengths.append(len(piece))
                yield piece

        names = store.put_all(pieces())
        extents.extend([name, 0, length] for name, length in zip(names, lengths, strict=True))


def _attributes(path: bytes) -> dict[str, str]:
    names = os.listxattr(path, follow_symlinks=False)
    return {
        name: os.getxattr(path, name, follow_symlinks=False).hex()
        for name in names
        if name.startswith(_KEPT) and name not in _LEFT_OUT
    }


def _walk(root: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """Yields all paths relative to a tree, which comes first as an empty one; parents before what is in them."""
    yield b"", os.lstat(root)
    waiting = [b""]
    while waiting:
        directory = waiting.pop()
        for name in sorted(os.listdir(root + b"/" + directory if directory else root)):
            path = directory + b"/" + name if directory else name
            about = os.lstat(root + b"/" + path)
            yield path, about
            if stat.S_ISDIR(about.st_mode):
                waiting.append(path)


def unpack_tree(
    store: ObjectStore, listed: Sequence[str], root: Path, progress: Callable[[int], object] = lambda _: None
) -> None:
    """Makes a tree as it was packed. What is wrong with it never leads out of `root`.

    Args:
        store: the store.
        listed: the blobs of its list.
        root: an empty directory, which becomes the tree's top.
        progress: is told how many bytes of contents were written.

    Raises:
        InfrastructureError: the list or a blob is missing, damaged or makes no sense, or the disk is full.
    """
    text = b"".join(store.get_all(listed))
    directories: dict[str, dict[str, Any]] = {}
    paths: set[str] = set()
    try:
        entries = list(map(json.loads, text.splitlines()))
        blobs = _Blobs(store, entries)
        for entry in entries:
            path = entry["path"]
            full = _place(root, path, directories, paths)
            paths.add(path)
            if "link" in entry:
                if entry["link"] not in paths or entry["link"] in directories:
                    raise ValueError(f"{path!r} is a link to what is not there")
                os.link(_inside(root, entry["link"]), full, follow_symlinks=False)
                continue
            _make(blobs, entry, full, directories, progress)
        # Last, because what is made in a directory changes its time; the deepest first.
        for path, entry in sorted(directories.items(), reverse=True):
            _apply_metadata(entry, _inside(root, path) if path else os.fsencode(root))
    except OSError as error:
        raise InfrastructureError(f"{root} cannot be written: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InfrastructureError(f"a tree in the store at {store.url} makes no sense: {error}") from None


def _place(root: Path, path: str, directories: dict[str, dict[str, Any]], paths: set[str]) -> bytes:
    """Returns where an entry is to be made; its folder must be one that was made."""
    if path in paths:
        raise ValueError(f"{path!r} is listed twice")
    if not path:
        return os.fsencode(root)
    folder, _, name = path.rpartition("/")
    if name in ("", ".", "..") or path.startswith("/") or "\0" in path or folder not in directories:
        raise ValueError(f"{path!r} is in no folder of the tree")
    return _inside(root, path)


def _inside(root: Path, path: str) -> bytes:
    return os.fsencode(root) + b"/" + os.fsencode(path)


def _make(
    blobs: _Blobs,
    entry: dict[str, Any],
    full: bytes,
    directories: dict[str, dict[str, Any]],
    progress: Callable[[int], object],
) -> None:
    mode, path = entry["mode"], entry["path"]
    if not path and not stat.S_ISDIR(mode):
        raise ValueError("its top is no folder")
    if stat.S_ISDIR(mode):
        if path:
            os.mkdir(full, 0o700)
        directories[path] = entry
        return
    if stat.S_ISREG(mode):
        with open(os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            written = 0
            for name, offset, length in entry["contents"]:
                piece = blobs.get(name)[offset : offset + length]
                if len(piece) != length or offset < 0:
                    raise ValueError(f"{path!r} is longer than its blob")
                written += _write_sparsely(file, piece)
            if written != entry["size"]:
                raise ValueError(f"{path!r} has another size")
            file.truncate(written)
            progress(written)
    elif stat.S_ISLNK(mode):
        os.symlink(os.fsencode(entry["target"]), full)
    elif stat.S_ISCHR(mode):
        os.mknod(full, stat.S_IFCHR, 0)  # a deleted file, as overlayfs wants it
    elif stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        os.mknod(full, stat.S_IFMT(mode) | 0o600)
    else:
        raise ValueError(f"{path!r} is of no known kind")
    _apply_metadata(entry, full)


def _write_sparsely(file: Any, piece: bytes) -> int:
    """Writes bytes, and leaves holes where there are zeros; returns how many."""
    empty = bytes(_BLOCK)
    for begin in range(0, len(piece), _BLOCK):
        block = piece[begin : begin + _BLOCK]
        if block == empty:
            file.seek(_BLOCK, os.SEEK_CUR)
        else:
            file.write(block)
    return len(piece)


def _apply_metadata(entry: dict[str, Any], full: bytes) -> None:
    """Gives what was made its owner, attributes, permissions and time."""
    mode = entry["mode"]
    owner = [int(number) for number in entry["owner"]]
    if any(not (UID_BASE <= number < UID_BASE + UID_COUNT or number == 0) for number in owner):
        raise ValueError(f"{entry['path']!r} belongs to nobody inside")
    os.chown(full, *owner, follow_symlinks=False)
    if not stat.S_ISLNK(mode):
        os.chmod(full, stat.S_IMODE(mode))
    attributes = entry.get("attributes", {})
    if len(attributes) > _MOST_ATTRIBUTES:
        raise ValueError(f"{entry['path']!r} has too many attributes")
    for name, value in attributes.items():
        if not name.startswith(_KEPT) or name in _LEFT_OUT:
            raise ValueError(f"{entry['path']!r} has an attribute {name!r}")
        os.setxattr(full, name, bytes.fromhex(value), follow_symlinks=False)
    os.utime(full, ns=(entry["mtime"], entry["mtime"]), follow_symlinks=False)


class _Blobs:
    """The blobs of a tree, fetched ahead in the order in which they are needed."""

    def __init__(self, store: ObjectStore, entries: Sequence[dict[str, Any]]) -> None:
        self._store = store
        order = dict.fromkeys(name for entry in entries for name, _, _ in entry.get("contents", ()))
        self._coming = zip(order, store.get_all(order), strict=True)
        self._there: dict[str, bytes] = {}  # the one that was used last comes last
        self._passed: set[str] = set()

    def get(self, name: str) -> bytes:
        """Returns the contents of a blob."""
        while name not in self._there and name not in self._passed:
            coming, data = next(self._coming)
            self._passed.add(coming)
            self._keep(coming, data)
        data = self._there.pop(name, b"") or self._store.get(name)
        self._keep(name, data)
        return data

    def _keep(self, name: str, data: bytes) -> None:
        self._there[name] = data
        while len(self._there) > _KEPT_BLOBS:
            del self._there[next(iter(self._there))]


def size_of(root: Path) -> int:
    """Returns the bytes of the files of a tree, for a progress bar."""
    total = 0
    with contextlib.suppress(OSError):
        total = sum(about.st_size for _, about in _walk(os.fsencode(root)) if stat.S_ISREG(about.st_mode))
    return total
