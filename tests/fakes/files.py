"""The fake's file tree: inodes and names in two dictionaries, so that a copy is two dictionary copies."""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tvsnap.model.observations import FileChange

Kind = Literal["file", "directory", "symlink", "fifo", "socket"]
SYMLINK_LIMIT = 40


@dataclass(frozen=True, slots=True)
class Inode:
    """What a name leads to; `data` holds a file's contents or a symlink's target."""

    kind: Kind
    data: bytes = b""
    mode: int = 0o644
    mtime: int = 0


class FileTree:
    """A small POSIX-like file tree. Directories carry no times: making and removing a file leaves no trace."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {"/": 1}
        self.inodes: dict[int, Inode] = {1: Inode("directory", mode=0o755)}
        self.next_inode = 2
        self.clock = 0

    def copy(self) -> FileTree:
        other = FileTree.__new__(FileTree)
        other.names = dict(self.names)
        other.inodes = dict(self.inodes)
        other.next_inode = self.next_inode
        other.clock = self.clock
        return other

    def resolve(self, path: str, *, follow: bool = True) -> str:
        """Returns the absolute path without symlinks (but the last component's, unless `follow`).

        Raises:
            OSError: ENOTDIR, ENOENT (a missing parent) or ELOOP. The last component may be missing.
        """
        pending = [part for part in path.split("/") if part and part != "."][::-1]
        wants_directory = path.endswith("/")
        here = "/"
        links = 0
        while pending:
            part = pending.pop()
            inode = self.at(here)
            if inode is None:
                raise error(errno.ENOENT, path)
            if inode.kind != "directory":
                raise error(errno.ENOTDIR, path)
            if part == "..":
                here = posixpath.dirname(here)
                continue
            step = posixpath.join(here, part)
            inode = self.at(step)
            if inode is not None and inode.kind == "symlink" and (pending or follow or wants_directory):
                links += 1
                if links > SYMLINK_LIMIT:
                    raise error(errno.ELOOP, path)
                target = inode.data.decode("utf-8", "surrogateescape")
                if target.startswith("/"):
                    here = "/"
                pending.extend([name for name in target.split("/") if name and name != "."][::-1])
                continue
            here = step
        inode = self.at(here)
        if wants_directory and inode is not None and inode.kind != "directory":
            raise error(errno.ENOTDIR, path)
        return here

    def at(self, name: str) -> Inode | None:
        """Returns the inode at a resolved path."""
        number = self.names.get(name)
        return None if number is None else self.inodes[number]

    def lookup(self, path: str, *, follow: bool = True) -> Inode | None:
        """Returns the inode that an absolute path leads to, None if there is none."""
        try:
            return self.at(self.resolve(path, follow=follow))
        except OSError:
            return None

    def need(self, path: str, *, follow: bool = True) -> tuple[str, Inode]:
        """Returns the resolved path and its inode; raises ENOENT if there is none."""
        name = self.resolve(path, follow=follow)
        inode = self.at(name)
        if inode is None:
            raise error(errno.ENOENT, path)
        return name, inode

    def read(self, path: str) -> bytes:
        _, inode = self.need(path)
        if inode.kind == "directory":
            raise error(errno.EISDIR, path)
        return inode.data

    def write(self, path: str, data: bytes, *, mode: int = 0o644, append: bool = False) -> None:
        name = self.resolve(path)
        inode = self.at(name)
        if inode is None:
            if path.endswith("/"):
                raise error(errno.EISDIR, path)
            self.add(name, Inode("file", data, mode))
            return
        if inode.kind == "directory":
            raise error(errno.EISDIR, path)
        self.change(name, replace(inode, data=inode.data + data if append else data))

    def add(self, name: str, inode: Inode) -> None:
        """Gives a new inode a resolved name whose parent must be a directory."""
        parent = self.at(posixpath.dirname(name))
        if parent is None:
            raise error(errno.ENOENT, name)
        if parent.kind != "directory":
            raise error(errno.ENOTDIR, name)
        if name in self.names:
            raise error(errno.EEXIST, name)
        self.names[name] = self.next_inode
        self.inodes[self.next_inode] = replace(inode, mtime=self.tick())
        self.next_inode += 1

    def change(self, name: str, inode: Inode) -> None:
        """Replaces the inode at a resolved name, for all its names."""
        self.inodes[self.names[name]] = replace(inode, mtime=self.tick())

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def make_directories(self, path: str, *, mode: int = 0o755) -> None:
        """Makes a directory and its parents; EEXIST or ENOTDIR where a file is in the way."""
        here = "/"
        for part in path.split("/"):
            if not part:
                continue
            here = self.resolve(posixpath.join(here, part))
            inode = self.at(here)
            if inode is None:
                self.add(here, Inode("directory", mode=mode))
            elif inode.kind != "directory":
                raise error(errno.ENOTDIR, path)

    def below(self, name: str) -> list[str]:
        """Returns the names below a resolved directory, sorted."""
        prefix = name.rstrip("/") + "/"
        return sorted(other for other in self.names if other.startswith(prefix) and other != "/")

    def list(self, name: str) -> list[str]:
        """Returns the entries of a resolved directory, sorted."""
        prefix = name.rstrip("/") + "/"
        return [other[len(prefix) :] for other in self.below(name) if "/" not in other[len(prefix) :]]

    def remove(self, name: str) -> None:
        """Removes a resolved name and all below it."""
        for other in [*self.below(name), name]:
            number = self.names.pop(other)
            if number not in self.names.values():
                del self.inodes[number]

    def rename(self, source: str, target: str) -> None:
        """Moves a resolved name and all below it to another resolved name, replacing a file there."""
        if source == target:
            return
        if target.startswith(source + "/"):
            raise error(errno.EINVAL, target)
        parent = self.at(posixpath.dirname(target))
        if parent is None or parent.kind != "directory":
            raise error(errno.ENOENT, target)
        moving = [source, *self.below(source)]
        if target in self.names:
            self.remove(target)
        for other in moving:
            self.names[target + other[len(source) :]] = self.names.pop(other)

    def link(self, source: str, target: str) -> None:
        """Gives a resolved file a second name."""
        if target in self.names:
            raise error(errno.EEXIST, target)
        self.names[target] = self.names[source]

    def changes(self, base: FileTree) -> Mapping[str, FileChange]:
        """Returns how this tree differs from `base`."""
        found: dict[str, FileChange] = {}
        for name, number in self.names.items():
            inode = self.inodes[number]
            if base.at(name) == inode:
                continue
            found[name] = FileChange(
                kind=inode.kind,
                size=len(inode.data),
                mode=inode.mode,
                mtime_ns=inode.mtime,
                identity=hashlib.sha256(inode.data).hexdigest(),
            )
        for name in base.names:
            if name not in self.names:
                found[name] = FileChange("deleted")
        return found

    def fingerprint(self, base: FileTree) -> str:
        """Returns a hash of what differs from `base`, contents and times included."""
        hasher = hashlib.sha256()
        for name, change in sorted(self.changes(base).items()):
            number = self.names.get(name, 0)
            hasher.update(f"{name!r} {change!r} {number}\n".encode("utf-8", "surrogateescape"))
        return hasher.hexdigest()

    def digest(self, base: FileTree) -> tuple[str, ...]:
        """Returns what differs from `base`, without times: names of one file by the first of them."""
        first: dict[int, str] = {}
        found = []
        for name, number in sorted(self.names.items()):
            inode = replace(self.inodes[number], mtime=0)
            there = base.at(name)
            first_name = first.setdefault(number, name)
            if first_name != name or there is None or replace(there, mtime=0) != inode:
                found.append(f"{name!r} {first_name!r} {inode!r}")
        return (*found, *(f"{name!r} gone" for name in sorted(base.names.keys() - self.names.keys())))

    def walk(self, name: str) -> Iterator[str]:
        """Yields a resolved name and all below it."""
        yield name
        yield from self.below(name)


def error(number: int, path: str) -> OSError:
    """Returns the OSError for an errno, as the kernel would word it."""
    return OSError(number, os.strerror(number), path)


def join(cwd: str, path: str) -> str:
    """Returns `path` as seen from `cwd`, absolute, symlinks and `..` left alone."""
    return path if path.startswith("/") else posixpath.join(cwd, path)
