"""What backends see of a sandbox's files, and fingerprints of them, however each came to see them."""

from __future__ import annotations

import hashlib
import os
import signal
import stat
import subprocess
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

from tvsnap.host import native
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.observations import FileChange
from tvsnap.sandboxes import looks, paths

_CHUNK = 1 << 20
MOST_RECORDS = 128 << 20
"""Bytes of a list of files: that of a million ordinary ones. Paths may have 4 KiB each, and nobody pays for those."""
SMALL_FILE = 64 * 1024  # bytes up to which a file is named by a digest of its contents
KINDS: dict[int, Literal["file", "directory", "symlink", "fifo", "socket"]] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One path, as lstat tells it."""

    path: str  # absolute, as seen inside
    mode: int  # type and permission bits
    uid: int
    gid: int
    size: int  # bytes
    mtime_ns: int
    ctime_ns: int
    atime_ns: int
    inode: int
    device: int  # that a device node stands for
    opaque: bool  # a directory of an upper layer that hides what the image has there
    flags: int  # of a directory, those that commands can set (chattr)
    attributes: str  # a hash of its extended attributes and access control lists; `0` if it has none

    @property
    def deleted(self) -> bool:
        """Whether it stands, in an upper layer, for a path that the image has and the sandbox has not."""
        return stat.S_ISCHR(self.mode) and self.device == 0

    @property
    def has_attributes(self) -> bool:
        """Whether it has extended attributes or access control lists, the kernel's own left out."""
        return self.attributes != "0"

    @property
    def set_time(self) -> int:
        """A directory's modification time if it was set on purpose (`touch -d`); 0 if its entries just changed."""
        return 0 if self.mtime_ns == self.ctime_ns else self.mtime_ns

    @property
    def dated(self) -> bool:
        """Whether a directory's time of modification says more than that some file came and went in it.

        Programs put temporary files where everybody may, and git locks what it looks at: such directories have another
        time after a mere look. All others keep theirs, and `make` and the like go by it.
        """
        return not self.mode & stat.S_ISVTX and "/.git/" not in f"{self.path}/"

    @property
    def stamp(self) -> str:
        """Changes whenever the file's contents do; costs nothing, but tells two equal files apart."""
        return _stamp(self.inode, self.size, self.mtime_ns, self.ctime_ns)


def stamp(found: os.stat_result) -> str:
    """Returns what `Entry.stamp` is of a file of which lstat says this."""
    return _stamp(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _stamp(inode: int, size: int, mtime_ns: int, ctime_ns: int) -> str:
    return f"{inode}:{size}:{mtime_ns}:{ctime_ns}"


def parse_entries(records: bytes) -> Iterator[Entry]:
    """Yields the entries that `walk list` printed.

    Raises:
        InfrastructureError: something else printed this, as it may where what a sandbox runs took its place.
    """
    fields = records.split(b"\0")
    try:
        for name, numbers in zip(fields[0::2], fields[1::2], strict=False):
            mode, *rest, attributes = numbers.split()
            uid, gid, size, mtime, ctime, atime, inode, device, opaque, flags = map(int, rest)
            yield Entry(
                os.fsdecode(name), int(mode, 8), uid, gid, size, mtime, ctime, atime, inode, device, bool(opaque),
                flags, attributes.decode(),
            )  # fmt: skip
    except ValueError:
        raise InfrastructureError(f"a list of files is none: {records[:40]!r}") from None


def walk(directory: Path, *, home: bool = False) -> Iterator[Entry]:
    """Yields a directory of the host, as `/`, and all that lies below it, without following any link.

    Args:
        directory: the directory.
        home: what lies in PID 1's own directory is told, too.

    Raises:
        InfrastructureError: part of it cannot be read; told at the end.
        NotSeen: there are more names than anybody looks at, or that takes too long.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOATIME
    with paths.closing(os.open(directory, flags)) as descriptor:
        options = ["--home"] if home else []
        command = [str(native.INIT), "within", str(looks.seconds()), "walk", "list", *options, str(descriptor)]
        run = subprocess.Popen(command, pass_fds=[descriptor], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stderr is not None
    with run:
        try:
            size, rest = 0, b""
            while chunk := run.stdout.read(_CHUNK):
                if (size := size + len(chunk)) > MOST_RECORDS:
                    raise looks.NotSeen(
                        f"the files of {directory} are too many: what there is to tell of them takes more than "
                        f"{MOST_RECORDS >> 20} MiB"
                    )
                looks.go_on()
                records, rest = _whole(rest + chunk)
                yield from parse_entries(records)
        finally:
            run.kill()
        said = run.stderr.read()  # a line at most
    if run.returncode == -signal.SIGKILL:
        raise looks.too_long()
    if run.returncode:
        raise InfrastructureError(f"the files of {directory} cannot be listed: {os.fsdecode(said).strip()}")


def _whole(records: bytes) -> tuple[bytes, bytes]:
    """Returns the records that are there to their ends, and the rest; each is two fields."""
    end = records.rfind(b"\0") + 1
    if records.count(b"\0") % 2:
        end = records.rfind(b"\0", 0, end - 1) + 1
    return records[:end], records[end:]


@dataclass(frozen=True, slots=True)
class ImageDirectory:
    """A directory of an image."""

    owned: tuple[int, int, int]  # its mode, owner and group
    mtime_ns: int  # its modification time
    bare: bool  # it has no extended attributes and no access control list
    place: Path  # where it is on this machine

    @property
    def atime_ns(self) -> int:
        """Its time of access, which processes of this machine may move."""
        return self.place.lstat().st_atime_ns


class ImageTree:
    """What a read-only image has at a path; remembered, since it never changes.

    Attributes:
        entry: returns where an image has what is at a path, and its lstat; None if it has nothing there.
        directory: returns what of it is known if it is a directory; else None.
        contents: a place for digests of its files, by where they are.
    """

    def __init__(self, *layers: Path, root: Path | None = None) -> None:
        """
        Args:
            layers: root directories, topmost first.
            root: the one whose time is that of `/`; by default the topmost.
        """
        self._root = root
        self._layers = layers
        self.entry = lru_cache(maxsize=65536)(partial(paths.topmost, layers))
        self.directory = lru_cache(maxsize=65536)(self._directory)
        self.contents: dict[str, str] = {}

    def below(self, path: str) -> Iterator[str]:
        """Yields all paths below a directory of the image."""
        for layer in self._layers:
            with paths.directory(layer) as root:
                for found, _ in paths.scan(root, path):
                    if self.entry(found) is not None:  # else another layer hides it
                        yield found

    def _directory(self, path: str) -> ImageDirectory | None:
        found = self.entry(path)
        if found is None or not stat.S_ISDIR(found[1].st_mode):
            return None
        place, about = found
        names = os.listxattr(place, follow_symlinks=False)
        return ImageDirectory(
            owned=(about.st_mode, about.st_uid, about.st_gid),
            mtime_ns=self._root.stat().st_mtime_ns if self._root and path == "/" else about.st_mtime_ns,
            bare=all(name.startswith("trusted.") for name in names),
            place=place,
        )


def differs(entry: Entry, image: ImageTree, *, accessed: bool = False) -> bool:
    """Whether an entry of an upper layer says anything.

    A directory is there also because something below it was touched once. A directory's time of access counts if
    `accessed`.
    """
    if not stat.S_ISDIR(entry.mode) or entry.opaque:
        return True
    there = image.directory(entry.path)
    if there is None or there.owned != (entry.mode, entry.uid, entry.gid):
        return True
    if entry.has_attributes or not there.bare or entry.flags or entry.set_time not in (0, there.mtime_ns):
        return True
    return accessed and entry.path != "/" and entry.atime_ns != there.atime_ns


def files_fingerprint(entries: Iterable[Entry], image: ImageTree, *, accessed: bool = False, dated: bool = True) -> str:
    """Returns a hash that changes whenever a file does.

    Args:
        entries: of an upper layer, in any order.
        image, accessed, dated: see `print_of`.
    """
    return together(print_of(entry, image, accessed=accessed, dated=dated) for entry in entries)


def together(prints: Iterable[bytes | None]) -> str:
    """Returns one hash for those of entries, in any order; None for those that say nothing."""
    return hashlib.sha256(b"".join(sorted(one for one in prints if one is not None))).hexdigest()


def print_of(entry: Entry, image: ImageTree, *, accessed: bool = False, dated: bool = True) -> bytes | None:
    """Returns a hash that changes whenever an entry of an upper layer does; None if it says nothing.

    All of a directory counts but its size, its time of change, and its time of modification where that says nothing
    (`Entry.dated`) and was not set on purpose. A file's attributes are in its time of change.

    Args:
        entry: the entry.
        image: what lies below it.
        accessed: to read does not change times of access: those of directories count, for they were set on purpose.
        dated: times of modification of directories count; False for those of a program that makes temporary files.
    """
    moved = False
    if dated and entry.dated and stat.S_ISDIR(entry.mode):
        there = image.directory(entry.path)
        moved = there is None or there.mtime_ns != entry.mtime_ns
    if not moved and not differs(entry, image, accessed=accessed):
        return None
    if stat.S_ISDIR(entry.mode):
        line = (
            f"{entry.path}\0{entry.mode} {entry.uid} {entry.gid} {entry.opaque} {entry.flags} {entry.attributes} "
            f"{entry.mtime_ns if moved else entry.set_time} {entry.inode} {entry.atime_ns if accessed else 0}"
        )
    elif entry.deleted:
        line = f"{entry.path}\0deleted"
    else:
        line = (
            f"{entry.path}\0{entry.mode} {entry.uid} {entry.gid} {entry.size} {entry.mtime_ns} {entry.ctime_ns} "
            f"{entry.inode} {entry.device} {entry.attributes}"
        )
    return hashlib.sha256(line.encode("utf-8", "surrogateescape")).digest()  # names may be long: none is kept


def linked(entries: Iterable[Entry]) -> dict[int, list[str]]:
    """Returns the names of each file that has several, by its inode."""
    entries = list(entries)
    if len({entry.inode for entry in entries}) == len(entries):
        return {}
    names: dict[int, list[str]] = {}
    for entry in entries:
        if not stat.S_ISDIR(entry.mode) and not entry.deleted:
            names.setdefault(entry.inode, []).append(entry.path)
    return {inode: several for inode, several in names.items() if len(several) > 1}


def outside(entries: Iterable[Entry], directories: Collection[str], within: list[Entry]) -> Iterator[Entry]:
    """Yields the entries that do not lie in any of `directories`; adds those that do to `within`."""
    for entry in entries:
        if lies_within(entry.path, directories):
            within.append(entry)
        else:
            yield entry


def lies_within(path: str, directories: Collection[str]) -> bool:
    """Whether a path is one of some directories, or below one."""
    return any(path == directory or path.startswith(f"{directory}/") for directory in directories)


def change_of(entry: Entry, identity: str, id_base: int = 0) -> FileChange | None:
    """Returns how a path differs from an image that has nothing there; None for a device, which is not told.

    Args:
        identity: names its contents; see `FileChange`.
        id_base: what owner the entry has where inside it is root.
    """
    kind = KINDS.get(stat.S_IFMT(entry.mode))
    if kind is None:
        return None
    return FileChange(
        kind=kind,
        size=0 if kind == "directory" else entry.size,
        mode=stat.S_IMODE(entry.mode),
        uid=entry.uid - id_base,
        gid=entry.gid - id_base,
        mtime_ns=entry.mtime_ns,
        identity="" if kind == "directory" else identity,
    )
