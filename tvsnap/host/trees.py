"""Files and folders as streams of items: read from this machine, stored in one file, and written to this machine again.

Items from a sandbox may be hostile. `extract` writes nothing outside its destination, whatever the items contain: each
name is split and opened step by step without following links, and links that lead out of the destination are not made.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal, Union, get_args

from tvsnap.host.libc import closing
from tvsnap.model.errors import InfrastructureError, UsageError

Kind = Literal["file", "directory", "symlink", "hardlink", "other"]
MAGIC = b"tvsnap tree 1\n"
CHUNK = 1 << 20
_LONGEST_HEADER = 1 << 16
_DEEPEST = 1000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class TreeItem:
    """One file, directory or link of a stream, in which directories come before their contents.

    Attributes:
        name: its path below the topmost item, whose own name is empty.
        kind: `hardlink` is another name of an earlier file; `other` is a device, a FIFO or a socket.
        mode: its permission bits.
        uid: the number of its owner; -1 if that does not matter.
        gid: the number of its group; -1 if that does not matter.
        size: bytes of a file.
        target: the target of a symbolic link, or the name of the earlier file.
        content: a file's contents, in pieces; they must be read before the next item is requested, or not at all.
    """

    name: str
    kind: Kind
    mode: int = 0
    uid: int = -1
    gid: int = -1
    size: int = 0
    target: str = ""
    content: Iterable[bytes] = ()


Upload = Union[str, Path, bytes, "Iterable[TreeItem]"]
"""The sources of uploads: a path of this machine, the contents of a file, or items."""


def items_of(source: Upload, *, owners: bool = False, mode: int | None = None) -> Iterator[TreeItem]:
    """Yields the items of an upload: always in the same order, and without times.

    Args:
        source: a file or folder of this machine, contents, or items, which are yielded unchanged.
        owners: include the owners.
        mode: the permission bits of a single file; by default its own, and 0644 for contents.

    Raises:
        UsageError: it is missing, cannot be read, contains something that is neither file, folder nor link, or changes
            meanwhile.
    """
    if isinstance(source, bytes):
        yield TreeItem(
            "", "file", 0o644 if mode is None else mode, size=len(source), content=(source,) if source else ()
        )
        return
    if not isinstance(source, (str, Path)):
        yield from source
        return
    top = os.path.realpath(source)
    linked: dict[tuple[int, int], str] = {}
    try:
        yield from _walk(top, "", linked, owners=owners, mode=mode)
    except OSError as error:
        raise _unreadable(error, str(source)) from None
    except RecursionError:
        raise UsageError(f"{source} has folders in folders that are too deep") from None


def _unreadable(error: OSError, path: str) -> UsageError:
    return UsageError(f"{error.filename or path} cannot be read: {error.strerror}")


def _walk(
    path: str, name: str, linked: dict[tuple[int, int], str], *, owners: bool, mode: int | None = None
) -> Iterator[TreeItem]:
    about = os.lstat(path)
    bits = stat.S_IMODE(about.st_mode)
    uid, gid = (about.st_uid, about.st_gid) if owners else (-1, -1)
    if stat.S_ISDIR(about.st_mode):
        yield TreeItem(name, "directory", bits, uid, gid)
        for entry in sorted(os.listdir(path), key=os.fsencode):
            yield from _walk(f"{path}/{entry}", f"{name}/{entry}" if name else entry, linked, owners=owners)
    elif stat.S_ISLNK(about.st_mode):
        yield TreeItem(name, "symlink", 0o777, uid, gid, target=os.readlink(path))
    elif stat.S_ISREG(about.st_mode):
        first = linked.setdefault((about.st_dev, about.st_ino), name) if about.st_nlink > 1 else name
        if first != name:
            yield TreeItem(name, "hardlink", target=first)
        else:
            yield TreeItem(
                name, "file", bits if mode is None else mode, uid, gid, about.st_size, "", _read(path, about)
            )
    else:
        raise UsageError(f"{path} is neither a file, a folder nor a link, and cannot be put anywhere")


def _read(path: str, about: os.stat_result) -> Iterator[bytes]:
    """Yields the bytes of a file; raises UsageError if their number has changed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    remaining = about.st_size
    try:
        with open(os.open(path, flags), "rb", buffering=0) as file:
            now = os.fstat(file.fileno())
            if (now.st_dev, now.st_ino, now.st_size) != (about.st_dev, about.st_ino, about.st_size):
                raise UsageError(f"{path} was changed while it was being read")
            while remaining and (piece := file.read(min(remaining, CHUNK))):
                remaining -= len(piece)
                yield piece
    except OSError as error:
        raise _unreadable(error, path) from None
    if remaining:
        raise UsageError(f"{path} was cut short while it was being read")


class Damaged(InfrastructureError):
    """A stored content has changed since it was written."""


def serialised(items: Iterable[TreeItem]) -> Iterator[bytes]:
    """Yields items as bytes, the same for equal items; `stored` reads them again."""
    yield MAGIC
    for item in items:
        facts = {"name": item.name, "kind": item.kind, "mode": item.mode, "size": item.size}
        facts |= {"target": item.target} if item.target else {}
        facts |= {"uid": item.uid, "gid": item.gid} if item.uid >= 0 else {}
        yield json.dumps(facts, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        yield from item.content


def store(items: Iterable[TreeItem], keep: Callable[[bytes], object] = len) -> str:
    """Passes items as bytes to `keep`, the same for equal items; returns their digest, 64 hexadecimal digits."""
    hasher = hashlib.sha256()
    for data in serialised(items):
        hasher.update(data)
        keep(data)
    return hasher.hexdigest()


def stored(file: IO[bytes], digest: str) -> Iterator[TreeItem]:
    """Yields the items that `store` wrote into a file, which is read from its current position.

    Raises:
        Damaged: the file has changed since it was written; raised at its end at the latest.
    """
    hasher = hashlib.sha256()
    remaining = 0
    damaged = Damaged(f"the stored content {digest[:12]} is damaged; it is made anew by who puts it again")

    def take(data: bytes) -> bytes:
        hasher.update(data)
        return data

    def content(size: int) -> Iterator[bytes]:
        nonlocal remaining
        remaining = size
        while remaining:
            piece = take(file.read(min(remaining, CHUNK)))
            if not piece:
                raise damaged
            remaining -= len(piece)
            yield piece

    if take(file.read(len(MAGIC))) != MAGIC:
        raise damaged
    while line := take(file.readline(_LONGEST_HEADER)):
        try:
            item = _stored_item(json.loads(line))
        except (ValueError, TypeError, KeyError, RecursionError, InfrastructureError):
            raise damaged from None
        item = replace(item, content=content(item.size))
        remaining = item.size
        yield item
        if remaining:
            for _ in item.content:
                pass
    if hasher.hexdigest() != digest:
        raise damaged


def _stored_item(facts: dict[str, Any]) -> TreeItem:
    """Returns an item without its content; raises an error of damage for `stored` if it is none."""
    numbers = (facts["mode"], facts.get("uid", -1), facts.get("gid", -1), facts["size"])
    name, kind, target = words = (facts["name"], facts["kind"], facts.get("target", ""))
    if not all(type(number) is int and -1 <= number < 1 << 63 for number in numbers) or numbers[-1] < 0:
        raise ValueError("a number is none, or too large")
    if kind not in get_args(Kind) or any(b"\0" in os.fsencode(word) for word in words):
        raise ValueError("it is of no kind, or a name holds a zero")
    for path in (name, target if kind == "hardlink" else ""):
        if path:
            _parts(path)
    return TreeItem(name, kind, *numbers, target)


def extract(items: Iterable[TreeItem], destination: str | Path, *, owners: bool = False) -> tuple[str, ...]:
    """Writes items to this machine: a file at `destination`, or a folder there, merged into an existing one.

    Existing files and links are replaced. Permission bits are set, except those that give a program its owner's rights.
    Nothing is written outside the destination.

    Args:
        items: the items; they may be hostile.
        destination: the path to write.
        owners: set the owners that the items name, which only root may do; otherwise the caller owns everything.

    Returns:
        The names that were left out, each with the reason: links that lead out of the destination, and devices.

    Raises:
        OSError: it cannot be written. A destination that did not exist does not exist then, either.
    """
    target = Path(os.path.abspath(destination))
    target.parent.mkdir(parents=True, exist_ok=True)
    stream = iter(items)
    top = next(stream)
    new = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}")
    try:
        if top.kind == "file":
            if target.is_dir():
                raise IsADirectoryError(21, os.strerror(21), str(target))
            with closing(os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as parent:
                _write_file(parent, new.name, top, owners=owners)
            new.replace(target)
            return ()
        merged = target.is_dir()
        if not merged:
            new.mkdir(mode=0o700)
        with closing(os.open(target if merged else new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
            left_out = _Extraction(root, owners=owners).run(top, stream, merged=merged)
        if not merged:
            new.rename(target)
        return left_out
    except BaseException:
        if new.is_dir():
            shutil.rmtree(new, ignore_errors=True)
        else:
            new.unlink(missing_ok=True)
        raise


class _Extraction:
    """Writes the items of one folder below an open directory."""

    def __init__(self, root: int, *, owners: bool) -> None:
        self._root = root
        self._owners = owners
        self._made: list[TreeItem] = []  # directories, whose modes are set last
        self._links: list[TreeItem] = []  # made last, too, so that nothing is written through one
        self._files: set[str] = set()  # files that may have further names
        self._left_out: list[str] = []

    def run(self, top: TreeItem, items: Iterable[TreeItem], *, merged: bool) -> tuple[str, ...]:
        """Writes all items; returns the names that were left out."""
        if top.kind != "directory":
            raise InfrastructureError(f"the fetched content begins with a {top.kind}")
        if not merged:
            self._made.append(top)
        for item in items:
            with self._parent_of(item.name) as (parent, name):
                self._make(item, parent, name)
        for item in self._links:
            with self._parent_of(item.name) as (parent, name):
                _clear(parent, name)
                os.symlink(item.target, name, dir_fd=parent)
                if self._owners and item.uid >= 0:
                    os.chown(name, item.uid, item.gid, dir_fd=parent, follow_symlinks=False)
        for item in reversed(self._made):
            with self._opened(_parts(item.name) if item.name else []) as directory:
                _give(directory, item, owners=self._owners)
        return tuple(self._left_out)

    def _make(self, item: TreeItem, parent: int, name: str) -> None:
        if item.kind == "directory":
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                    return
            _clear(parent, name)
            os.mkdir(name, 0o700, dir_fd=parent)
            self._made.append(item)
        elif item.kind == "file":
            _clear(parent, name)
            _write_file(parent, name, item, owners=self._owners)
            self._files.add(item.name)
        elif item.kind == "hardlink" and item.target in self._files:
            _clear(parent, name)
            with self._parent_of(item.target) as (source, first):
                os.link(first, name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        elif item.kind == "symlink" and _stays_inside(item):
            self._links.append(item)
        else:
            reason = f"leads out of it, to {item.target!r}" if item.kind == "symlink" else "is no file"
            self._left_out.append(f"{item.name}: {reason}")

    @contextlib.contextmanager
    def _parent_of(self, name: str) -> Iterator[tuple[int, str]]:
        *above, last = _parts(name)
        with self._opened(above) as parent:
            yield parent, last

    @contextlib.contextmanager
    def _opened(self, parts: Sequence[str]) -> Iterator[int]:
        """Opens a directory below the root for the block, without following links."""
        here = os.dup(self._root)
        try:
            for part in parts:
                below = os.open(part, _FOLDER, dir_fd=here)
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)


def _parts(name: str) -> list[str]:
    """Splits a path below the topmost item into names; raises InfrastructureError if it is invalid."""
    parts = name.split("/")
    if len(parts) > _DEEPEST or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise InfrastructureError(f"the fetched content has an impossible name: {name[:100]!r}")
    return parts


def check_name(name: str) -> str:
    """Returns the name of an item; raises InfrastructureError if it is invalid."""
    _parts(name)
    return name


def _stays_inside(link: TreeItem) -> bool:
    """Returns whether a symbolic link leads to a place below the topmost item, with any other links."""
    parts = link.target.split("/")
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    below = ".." not in parts[up:]  # after a name, `..` may be the parent of a directory elsewhere
    return bool(link.target) and parts[0] != "" and below and up < len(_parts(link.name))


def _clear(parent: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


def _write_file(parent: int, name: str, item: TreeItem, *, owners: bool) -> None:
    with open(os.open(name, _NEW_FILE, 0o600, dir_fd=parent), "wb", buffering=0) as file:
        for piece in item.content:
            view = memoryview(piece)
            while view:
                view = view[file.write(view) :]
        _give(file.fileno(), item, owners=owners)


def _give(descriptor: int, item: TreeItem, *, owners: bool) -> None:
    if owners and item.uid >= 0:
        os.fchown(descriptor, item.uid, item.gid)
    os.fchmod(descriptor, item.mode & 0o777)
