"""Data on a sandbox's files, and fingerprints of it, for all backends."""

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
from tvsnap.host.libc import closing
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.observations import FileChange
from tvsnap.sandboxes.kernel import allowance, paths

_CHUNK = 1 << 20
MOST_RECORDS = 128 << 20
"""Bytes of a list of files: as many as a million ordinary files need. Paths of up to 4 KiB could need far more."""
SMALL_FILE = 64 * 1024  # bytes; up to this size a file is identified by a digest of its contents
KINDS: dict[int, Literal["file", "directory", "symlink", "fifo", "socket"]] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One path, with the values of lstat."""

    path: str  # absolute, as seen inside
    mode: int  # type and permission bits
    uid: int
    gid: int
    size: int  # bytes
    mtime_ns: int
    ctime_ns: int
    atime_ns: int
    inode: int
    device: int  # the device number of a device node
    opaque: bool  # a directory of an upper layer that hides the image's contents there
    flags: int  # a directory's flags that commands can set (chattr)
    attributes: str  # a hash of its extended attributes and access control lists; `0` if it has none

    @property
    def deleted(self) -> bool:
        """Whether, in an upper layer, it marks a path of the image as deleted."""
        return stat.S_ISCHR(self.mode) and self.device == 0

    @property
    def has_attributes(self) -> bool:
        """Whether it has extended attributes or access control lists, except the kernel's own."""
        return self.attributes != "0"

    @property
    def set_time(self) -> int:
        """A directory's modification time if it was set on purpose (`touch -d`); 0 if its entries just changed."""
        return 0 if self.mtime_ns == self.ctime_ns else self.mtime_ns

    @property
    def dated(self) -> bool:
        """Whether a directory's modification time means more than that temporary files came and went.

        Programs create temporary files in world-writable (sticky) directories, and git creates locks in directories
        that it only reads: so mere reading changes the time of these. All others keep theirs, for `make` and such.
        """
        return not self.mode & stat.S_ISVTX and "/.git/" not in f"{self.path}/"

    @property
    def stamp(self) -> str:
        """Changes whenever the file's contents do; needs no reading, but differs between equal files."""
        return _stamp(self.inode, self.size, self.mtime_ns, self.ctime_ns)


def stamp(about: os.stat_result) -> str:
    """Returns `Entry.stamp` for a file with this lstat."""
    return _stamp(about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


def _stamp(inode: int, size: int, mtime_ns: int, ctime_ns: int) -> str:
    return f"{inode}:{size}:{mtime_ns}:{ctime_ns}"


def parse_entries(records: bytes) -> Iterator[Entry]:
    """Parses the output of `walk list`.

    Raises InfrastructureError if it is something else, as it may be if a program in the sandbox took its place.
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
    """Yields a directory of the host, as `/`, and all that is below it, without following links.

    With `home`, the contents of PID 1's own directory are included. Raises InfrastructureError at the end if part of it
    is unreadable, and NotSeen beyond the limits of names or time.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOATIME
    with closing(os.open(directory, flags)) as descriptor:
        options = ["--home"] if home else []
        command = [str(native.INIT), "within", str(allowance.seconds()), "walk", "list", *options, str(descriptor)]
        run = subprocess.Popen(command, pass_fds=[descriptor], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stderr is not None
    with run:
        try:
            size, rest = 0, b""
            while chunk := run.stdout.read(_CHUNK):
                if (size := size + len(chunk)) > MOST_RECORDS:
                    raise allowance.NotSeen(
                        f"the files of {directory} are too many: what there is to tell of them takes more than "
                        f"{MOST_RECORDS >> 20} MiB"
                    )
                allowance.go_on()
                records, rest = _whole(rest + chunk)
                yield from parse_entries(records)
        finally:
            run.kill()
        complaint = run.stderr.read()  # at most one line
    if run.returncode == -signal.SIGKILL:
        raise allowance.too_long()
    if run.returncode:
        raise InfrastructureError(f"the files of {directory} cannot be listed: {os.fsdecode(complaint).strip()}")


def _whole(records: bytes) -> tuple[bytes, bytes]:
    """Splits off the complete records, of two fields each; returns them and the rest."""
    end = records.rfind(b"\0") + 1
    if records.count(b"\0") % 2:
        end = records.rfind(b"\0", 0, end - 1) + 1
    return records[:end], records[end:]


@dataclass(frozen=True, slots=True)
class ImageDirectory:
    """A directory of an image."""

    owned: tuple[int, int, int]  # mode, owner and group
    mtime_ns: int
    bare: bool  # it has no extended attributes and no access control list
    place: Path  # on the host

    @property
    def atime_ns(self) -> int:
        """Its access time, which processes of the host may change."""
        return self.place.lstat().st_atime_ns


class ImageTree:
    """The files of a read-only image; lookups are cached, because they never change.

    Attributes:
        directory: returns an `ImageDirectory` if the path is a directory; else None.
        contents: a cache for digests of its files, by location.
    """

    def __init__(self, *layers: Path, root: Path | None = None) -> None:
        """
        Args:
            layers: root directories, topmost first.
            root: the one with the modification time of `/`; by default the topmost.
        """
        self._root = root
        self._layers = layers
        self._topmost = lru_cache(maxsize=65536)(partial(paths.topmost, layers))
        self.directory = lru_cache(maxsize=65536)(self._directory)
        self.contents: dict[str, str] = {}

    def entry(self, path: str) -> tuple[Path, os.stat_result] | None:
        """Returns the location of a path's file on the host, and its lstat; None if the image has no such path.

        The files of a directory that the image does not have, of which there may be many, are not looked for.
        """
        above = path.rpartition("/")[0]
        if above:
            directory = self._topmost(above)
            if directory is None or not stat.S_ISDIR(directory[1].st_mode):
                return None
        return self._topmost(path)

    def below(self, path: str) -> Iterator[str]:
        """Yields all paths below a directory of the image."""
        for layer in self._layers:
            with paths.directory(layer) as root:
                for name, _ in paths.scan(root, path):
                    if self.entry(name) is not None:  # otherwise another layer hides it
                        yield name

    def _directory(self, path: str) -> ImageDirectory | None:
        entry = self.entry(path)
        if entry is None or not stat.S_ISDIR(entry[1].st_mode):
            return None
        place, about = entry
        names = os.listxattr(place, follow_symlinks=False)
        return ImageDirectory(
            owned=(about.st_mode, about.st_uid, about.st_gid),
            mtime_ns=self._root.stat().st_mtime_ns if self._root and path == "/" else about.st_mtime_ns,
            bare=all(name.startswith("trusted.") for name in names),
            place=place,
        )


def differs(entry: Entry, image: ImageTree, *, accessed: bool = False) -> bool:
    """Whether an entry of an upper layer differs from the image.

    A directory may also be there because something below it was changed once. A directory's access time counts if
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
    """Returns a hash that changes whenever a file of an upper layer does; see `print_of`."""
    return together(print_of(entry, image, accessed=accessed, dated=dated) for entry in entries)


def together(prints: Iterable[bytes | None]) -> str:
    """Returns one hash for the hashes of entries, in any order; None is an entry without a difference."""
    return hashlib.sha256(b"".join(sorted(one for one in prints if one is not None))).hexdigest()


def print_of(entry: Entry, image: ImageTree, *, accessed: bool = False, dated: bool = True) -> bytes | None:
    """Returns a hash that changes whenever an entry of an upper layer does; None if it does not differ from the image.

    Everything about a directory counts except its size, its ctime, and its modification time if that means nothing
    (`Entry.dated`) and was not set explicitly. A file's ctime covers its attributes.

    Args:
        entry: the entry.
        image: the layers below it.
        accessed: directories' access times count; since reading does not change them, they were set explicitly.
        dated: directories' modification times count; False for those of a program that makes temporary files.
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
    return hashlib.sha256(line.encode("utf-8", "surrogateescape")).digest()  # hashed, because names may be long


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
    """Yields the entries that are not in any of `directories`; adds the others to `within`."""
    for entry in entries:
        if lies_within(entry.path, directories):
            within.append(entry)
        else:
            yield entry


def lies_within(path: str, directories: Collection[str]) -> bool:
    """Whether a path is one of these directories, or below one."""
    return any(path == directory or path.startswith(f"{directory}/") for directory in directories)


def change_of(entry: Entry, identity: str, id_base: int = 0) -> FileChange | None:
    """Returns a change for a path that the image lacks; None for a device, which is not reported.

    `identity` identifies its contents (see `FileChange`); `id_base` is the host's user id for the sandbox's root.
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
