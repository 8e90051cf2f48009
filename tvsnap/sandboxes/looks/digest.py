"""Computes the digest of all that a sandbox holds, for every backend: see `Sandbox.digest`.

A digest is made of: files by path, type, mode, owner, flags, extended attributes, access control lists, hard links and
content, if they differ from the image's, and the image's files that are gone; the idle shell's report, its descriptors
and its kernel state; the bytes that the terminal was sent.

There is no digest if there is: a process beyond PID 1 and the idle shell, a shell at its prompt, a pipe, socket or
deleted file among the shell's descriptors, a file that the shell has locked, a change in our own directory, a seeded
`RANDOM`, a background job that the shell remembers, changed terminal modes, System V objects, sockets of no process
(TIME_WAIT), or more than `MOST_BYTES` or `MOST_FILES`.

Times, inode numbers, and the places of holes in files are left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import re
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tvsnap.guest.protocol import Guest, GuestInfo
from tvsnap.host.libc import closing
from tvsnap.host.native import DEVICES
from tvsnap.images.rootfs import unshifted_capability
from tvsnap.model.errors import InfrastructureError, SandboxDied
from tvsnap.model.images import CAPABILITY_XATTR, UID_BASE
from tvsnap.sandboxes.kernel import paths
from tvsnap.sandboxes.kernel.process_report import OpenFile, ShellHold
from tvsnap.sandboxes.kernel.procfs import read
from tvsnap.sandboxes.looks import native_look
from tvsnap.sandboxes.looks.observing import Entry, ImageTree, linked
from tvsnap.sandboxes.shell_report import VOLATILE, ShellReports, declared, without_clock

MOST_BYTES = 1 << 30  # read for one digest
MOST_FILES = 200_000  # differing from the image
_BLOCK = 64 * 1024
_CHUNK = 16 * _BLOCK
_NOTHING = bytes(_BLOCK)
_SEVERAL, _MOST_AT_ONCE = 4, 256
"""Small files from which on they are read at once, and that are in memory at once."""
_RECENT_NS = 20_000_000  # a file changed more recently may be changed again without another ctime
_GET_FLAGS = 0x80086601
_SETTABLE = 0x228384FF  # file flags that the owner can change; see walk.c
_ACL = "system.posix_acl_"
_ACL_ENTRY = struct.Struct("<HHI")
_NAMED = (2, 8)  # tags of access control list entries that have an owner
_CAPABILITY_SHIFTED = 24  # bytes of a file capability that names its user namespace
_FLAGGED = {
    "BASHPID", "BASH_COMMAND", "BASH_SUBSHELL", "EPOCHREALTIME", "EPOCHSECONDS", "HISTCMD", "LINENO", "RANDOM",
    "SECONDS", "SRANDOM",
}  # fmt: skip
"""Variables with a value that bash computes, and with attributes that are part of the state."""
_OPENED = {f"/dev/{name}" for name in DEVICES if name != "tty"}
_SOCKETS = re.compile(rb"\b(?:inuse|tw) (\d+)")


class Incomparable(Exception):
    """The sandbox holds something that no digest can cover; the message names it."""


class _Changed(Exception):
    """The sandbox has changed since its shell's report."""


class _Part(NamedTuple):
    """An entry's part of a digest: empty if it is as in the image."""

    entry: Entry
    record: bytes
    key: tuple[str, str]  # in `Contents.digests`


@dataclasses.dataclass(slots=True)
class Contents:
    """Digests of the contents of a sandbox's files, by stamps that change whenever the contents do.

    Those of a snapshot's files are valid for its forks if a copy of a file keeps its inode number and its times; see
    `SnapshotFiles`.

    Attributes:
        digests: the digests, by path and stamp.
        parts: the entries' parts of the last digest, by path; valid only for the same objects.
        last: a list of entries, and their part of the digest.
    """

    digests: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    parts: dict[str, _Part] = dataclasses.field(default_factory=dict)
    last: tuple[list[Entry], bytes] | None = None

    def copy(self) -> Contents:
        return Contents(dict(self.digests), dict(self.parts), self.last)


@dataclasses.dataclass(frozen=True, slots=True)
class Files:
    """The files of a sandbox that may differ from its image."""

    entries: list[Entry]  # the differing files, and directories that lead to them
    gone: Callable[[], Iterable[str]]  # returns paths of the image that were deleted
    root: int  # descriptor (O_PATH) of a directory below which the entries are
    id_base: int  # the entries' owner that is root inside
    image: ImageTree  # the image's files; their owners are shifted by `UID_BASE`
    contents: Contents  # known digests; those of deleted files are dropped


def digest(
    guest: Guest,
    reports: ShellReports,
    processes: Callable[[int], tuple[bool, ShellHold | None]],
    files: Callable[[], contextlib.AbstractContextManager[Files]],
    outside: Path,
    changes: int,
    reported: tuple[bytes | None, GuestInfo] | None = None,
    stands: Callable[[], bool] = lambda: False,
) -> str | None:
    """Returns the digest of a sandbox; see `Sandbox.digest`.

    Raises SandboxDied or InfrastructureError if the sandbox does not answer.

    Args:
        guest: its PID 1.
        reports: the cache of its shell's reports.
        processes: takes the shell's process id inside; returns whether no process beyond PID 1 and the shell lives, and
            the shell's resources.
        files: returns a context manager with its files.
        outside: the directory of its PID 1 in the host's /proc.
        changes: the number of calls that have changed its state; future process ids depend on it.
        reported: the result of `Guest.report`, possibly outdated.
        stands: returns whether nothing has run inside since `reported`. If something has, all is inspected again.
    """
    try:
        if reported is not None:
            with contextlib.suppress(_Changed):
                return _digest(guest, reports, processes, files, outside, changes, reported, stands)
        return _digest(guest, reports, processes, files, outside, changes, guest.report(), None)
    except SandboxDied:
        raise
    except (_Changed, Incomparable, OSError, InfrastructureError):  # for example, a directory is too deep to be listed
        return None


def _digest(
    guest: Guest,
    reports: ShellReports,
    processes: Callable[[int], tuple[bool, ShellHold | None]],
    files: Callable[[], contextlib.AbstractContextManager[Files]],
    outside: Path,
    changes: int,
    reported: tuple[bytes | None, GuestInfo],
    stands: Callable[[], bool] | None,
) -> str:
    """Returns the digest of a sandbox; raises _Changed if it is not as `reported`."""
    dump, info = reported
    if dump is None or not info.idle or not info.plain:
        raise _Changed
    alone, hold = processes(info.shell)
    if not alone or hold is None:
        raise Incomparable("processes live beyond PID 1 and the shell")
    _check_network(outside)
    hasher = hashlib.sha256(b"%b%d %d " % (reports.come_to(_shell, dump), info.shell, changes))
    for text in _hold(hold, outside / "root"):
        hasher.update(_record(text))
    with files() as differing:
        files_part = _files(differing)
    if stands is None:
        (shown, columns, rows), now = guest.terminal_and_info()
        same = now == info
    else:
        (shown, columns, rows), same = guest.terminal_of(info), stands()
    if not same:
        raise _Changed
    hasher.update(_record(f"{hashlib.sha256(shown).hexdigest()} {info.shown} {columns} {rows}"))
    hasher.update(files_part)
    return hasher.hexdigest()


def _record(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return b"%d:%b" % (len(data), data)


# -- the shell ------------------------------------------------------------------------------------------------------


def _shell(dump: bytes) -> bytes:
    """Returns a hash of the state that a shell reported, without the parts that change by themselves."""
    variables, _, rest = dump.partition(b"\1")
    lines = []
    for name, text in declared(variables):
        if name == "RANDOM" and b"=" in text:
            raise Incomparable("RANDOM was used, and may have been seeded")
        if name in _FLAGGED:
            lines.append(text.partition(b"=")[0].rstrip())
        elif name not in VOLATILE:
            lines.append(text)
    last = re.search(rb"\x01last\n-?\d+ (\d*)\n", rest)
    if last is None or last[1]:
        raise Incomparable("the shell remembers a background job, and how it ended")
    return hashlib.sha256(b"\0".join((*lines, without_clock(rest)))).digest()


def _hold(hold: ShellHold, root: Path) -> Iterator[str]:
    """Yields the shell's resources that it does not report, given the sandbox's root directory."""
    if hold.cwd_deleted:
        raise Incomparable("the shell's directory is deleted")
    if hold.locked:
        raise Incomparable("the shell has locked a file")
    yield str([getattr(hold, name) for name in _HELD])
    for file in hold.files:
        if file.of_the_shell:
            yield f"{file.number} {file.flags}"
        else:
            _check_opened(file, root)
            yield str(file)


_NOT_HELD = ("pid", "start", "files", "holds", "locked")
_HELD = [each.name for each in dataclasses.fields(ShellHold) if each.name not in _NOT_HELD]


def _check_opened(file: OpenFile, root: Path) -> None:
    """Raises Incomparable if a descriptor of the shell may have state beyond its file and its position."""
    if file.target in _OPENED:
        return
    if file.target.startswith("/") and not file.target.endswith(" (deleted)"):
        with paths.directory(root) as top, closing(paths.open_beneath(top, file.target)) as descriptor:
            mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            return
    raise Incomparable(f"the shell holds {file.target} open")


def _check_network(outside: Path) -> None:
    """Raises Incomparable if there are sockets of no process, such as those in TIME_WAIT."""
    for name in ("sockstat", "sockstat6"):
        with contextlib.suppress(FileNotFoundError):  # no IPv6
            if any(map(int, _SOCKETS.findall(read(f"{outside}/net/{name}")))):
                raise Incomparable("there are sockets")


# -- files ----------------------------------------------------------------------------------------------------------


def _files(files: Files) -> bytes:
    """Returns the files' part of a digest."""
    last = files.contents.last
    if last is not None and last[0] is files.entries:
        return last[1]
    if len(files.entries) > MOST_FILES:
        raise Incomparable("too many files")
    reader = _Reader(files)
    first = {inode: min(names) for inode, names in linked(files.entries).items()}
    records: dict[str, bytes] = {}
    new = []
    for entry in files.entries:
        if (record := reader.earlier(entry)) is not None:
            records[entry.path] = record
        elif not entry.deleted:
            named = None if stat.S_ISDIR(entry.mode) else first.get(entry.inode)
            if named in (None, entry.path):
                new.append((entry, named is not None))
            else:
                records[entry.path] = _record(f"{entry.path}\0link {named}")
    reader.read_small([entry for entry, _ in new])
    for entry, has_several_names in new:
        path = entry.path
        records[path] = _record(f"{path}\0{reader.about(entry)}") if has_several_names else reader.record(entry)
    gone = (_record(f"{path}\0gone") for path in sorted(files.gone()))
    joined = b"".join([*(records[path] for path in sorted(records)), *gone])
    reader.keep(joined)
    return joined


class _Reader:
    """Describes files of a sandbox and of its image by texts that are equal only if the files are."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._digests = files.contents.digests
        self._parts = files.contents.parts
        self._digests_now: dict[tuple[str, str], str] = {}
        self._parts_now: dict[str, _Part] = {}
        self._small: dict[str, tuple[str, int]] = {}  # the results of `read_small`: contents, and when they were read
        self._bytes_left = MOST_BYTES
        self._recent = False  # a file was changed a moment ago, and may change again

    def earlier(self, entry: Entry) -> bytes | None:
        """Returns the last result of `record` if it was for this entry object."""
        part = self._parts.get(entry.path)
        if part is None or part.entry is not entry:
            return None
        content = self._digests.get(part.key)
        if content is not None:
            self._digests_now[part.key] = content
        self._parts_now[entry.path] = part
        return part.record

    def read_small(self, entries: Sequence[Entry]) -> None:
        """Reads the small files among entries all at once, because one after the other takes ten times as long."""
        if len(entries) < _SEVERAL:
            return
        small = [entry for entry in entries if _is_small(entry) and (entry.path, entry.stamp) not in self._digests]
        for start in range(0, len(small), _MOST_AT_ONCE):
            several, now = small[start : start + _MOST_AT_ONCE], time.time_ns()
            found = native_look.contents(self._files.root, [entry.path for entry in several], _BLOCK)
            for entry, file in zip(several, found, strict=True):
                if file is not None:
                    data, mtime_ns, ctime_ns, flags = file
                    _check_same(entry, len(data), mtime_ns, ctime_ns)
                    self._spend(len(data))
                    self._small[entry.path] = f"{_hash_of_small(data)} {flags:x} ", now

    def record(self, entry: Entry) -> bytes:
        """Returns an entry's part of the digest if it has no other name; empty if it is as in the image."""
        about, key = self.about(entry), (entry.path, entry.stamp)
        record = b"" if about == self.image(entry) else _record(f"{entry.path}\0{about}")
        if not stat.S_ISREG(entry.mode) or key in self._digests_now:  # otherwise it was changed a moment ago
            self._parts_now[entry.path] = _Part(entry, record, key)
        return record

    def about(self, entry: Entry) -> str:
        base = self._files.id_base
        about = f"{entry.mode:o} {entry.uid - base} {entry.gid - base}"
        if stat.S_ISREG(entry.mode):
            return f"{about} {self._content(entry)}"
        if stat.S_ISDIR(entry.mode):
            attributes = ""
            if entry.has_attributes:
                with self._open(entry, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME) as directory:
                    attributes = _attributes(directory, base)
            return f"{about} {entry.flags:x} {attributes}"
        if stat.S_ISLNK(entry.mode):
            with self._open(entry, os.O_PATH) as link:
                return f"{about} {entry.attributes} {os.readlink('', dir_fd=link)}"
        return f"{about} {entry.attributes} {entry.device}"

    def image(self, entry: Entry) -> str:
        """Returns the description of the image's file at an entry's path; empty if it obviously differs."""
        there = self._files.image.entry(entry.path)
        if there is None:
            return ""
        place, image_stat = there
        base = self._files.id_base - UID_BASE
        if (image_stat.st_mode, image_stat.st_uid + base, image_stat.st_gid + base) != (
            entry.mode,
            entry.uid,
            entry.gid,
        ):
            return ""
        about = f"{image_stat.st_mode:o} {image_stat.st_uid - UID_BASE} {image_stat.st_gid - UID_BASE}"
        if stat.S_ISDIR(entry.mode):
            return f"{about} 0 {_attributes(place, UID_BASE)}"
        if stat.S_ISLNK(entry.mode):
            return f"{about} 0 {os.readlink(place)}"
        if not stat.S_ISREG(entry.mode) or image_stat.st_nlink > 1 or image_stat.st_size != entry.size:
            return ""  # the file's other names still have the image's contents
        return f"{about} {self._image_content(place, image_stat)}"

    def keep(self, records: bytes) -> None:
        """Stores the digests of the existing files, and the files' part of the digest, for the next digest."""
        self._files.contents.digests = self._digests_now
        self._files.contents.parts = self._parts_now
        self._files.contents.last = None if self._recent else (self._files.entries, records)

    def _content(self, entry: Entry) -> str:
        key = entry.path, entry.stamp
        content = self._digests.get(key)
        if content is None:
            content, read_ns = self._small.get(entry.path) or self._read_one(entry)
            if read_ns - entry.ctime_ns < _RECENT_NS:
                self._recent = True
                return content
        self._digests_now[key] = content
        return content

    def _read_one(self, entry: Entry) -> tuple[str, int]:
        began = time.time_ns()
        with self._open(entry, os.O_RDONLY | os.O_NONBLOCK | os.O_NOATIME) as descriptor:
            content = self._read(descriptor, self._files.id_base, attributes=entry.has_attributes)
            now = os.fstat(descriptor)
            _check_same(entry, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
        return content, began

    def _image_content(self, place: Path, image_stat: os.stat_result) -> str:
        remembered = self._files.image.contents
        if str(place) not in remembered:
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOATIME
            with closing(os.open(place, flags)) as descriptor:
                remembered[str(place)] = self._read(descriptor, UID_BASE, attributes=True)
        return remembered[str(place)]

    def _open(self, entry: Entry, flags: int) -> contextlib.AbstractContextManager[int]:
        return closing(paths.open_beneath(self._files.root, entry.path, flags))

    def _read(self, descriptor: int, id_base: int, *, attributes: bool) -> str:
        size = os.fstat(descriptor).st_size
        content = hashlib.sha256(b"%d" % size)
        at = 0
        while at < size:
            if size > _BLOCK:
                try:
                    at = max(at, os.lseek(descriptor, at, os.SEEK_DATA) // _BLOCK * _BLOCK)
                except OSError:  # the rest is a hole
                    break
            chunk = _read_at(descriptor, min(_CHUNK, size - at), at)
            self._spend(len(chunk))
            if not chunk:
                raise Incomparable("a file was cut short while it was read")
            for start in range(0, len(chunk), _BLOCK):
                _add_block(content, at + start, chunk[start : start + _BLOCK])
            at += len(chunk)
        flags = 0
        with contextlib.suppress(OSError):  # the file system has no flags
            flags = struct.unpack("=I", fcntl.ioctl(descriptor, _GET_FLAGS, bytes(4)))[0] & _SETTABLE
        return f"{content.hexdigest()} {flags:x} {_attributes(descriptor, id_base) if attributes else ''}"

    def _spend(self, size: int) -> None:
        """Notes that so many bytes were read; raises Incomparable if they are more than may be."""
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise Incomparable("too much to read")


def _is_small(entry: Entry) -> bool:
    return stat.S_ISREG(entry.mode) and entry.size <= _BLOCK and not entry.has_attributes


def _check_same(entry: Entry, size: int, mtime_ns: int, ctime_ns: int) -> None:
    """Raises Incomparable if a file is not as its entry says any more."""
    if (size, mtime_ns, ctime_ns) != (entry.size, entry.mtime_ns, entry.ctime_ns):
        raise Incomparable(f"{entry.path} was changed while it was read")


def _hash_of_small(data: bytes) -> str:
    """Returns the hash of a file of one block at most, as `_Reader._read` makes it of any file."""
    content = hashlib.sha256(b"%d" % len(data))
    if data:
        _add_block(content, 0, data)
    return content.hexdigest()


def _add_block(content: hashlib._Hash, at: int, block: bytes) -> None:
    """Adds a block of a file, unless it is as a hole would be."""
    if block != _NOTHING[: len(block)]:
        content.update(b"%d " % at)
        content.update(block)


def _read_at(descriptor: int, size: int, at: int) -> bytes:
    data = os.pread(descriptor, size, at)
    while len(data) < size and (more := os.pread(descriptor, size - len(data), at + len(data))):
        data += more
    return data


def _attributes(of: int | Path, id_base: int) -> str:
    """Returns the extended attributes and access control lists of a file, with the owners as seen inside."""
    lines = []
    for name in sorted(os.listxattr(of)):
        if name.startswith("trusted."):
            continue
        value = os.getxattr(of, name)
        if name.startswith(_ACL):
            value = _unshifted_acl(value, id_base)
        elif name == CAPABILITY_XATTR and len(value) == _CAPABILITY_SHIFTED:
            value = unshifted_capability(value)
        lines.append(f"{name}={hashlib.sha256(value).hexdigest()}")
    return " ".join(lines)


def _unshifted_acl(value: bytes, id_base: int) -> bytes:
    """Returns an access control list as seen inside."""
    entries = bytearray(value[:4])
    for tag, permissions, owner in _ACL_ENTRY.iter_unpack(value[4:]):
        entries += _ACL_ENTRY.pack(tag, permissions, owner - id_base if tag in _NAMED else owner)
    return bytes(entries)


def gone(entries: Iterable[Entry], image: ImageTree) -> set[str]:
    """Returns the paths of an image that an upper layer with these entries deletes; for a directory, its own alone."""
    there = {entry.path: entry for entry in entries}
    names = {entry.path for entry in there.values() if entry.deleted and image.entry(entry.path)}
    for entry in there.values():
        if entry.opaque:
            names.update(_gone_from(there, {path for path in image.below(entry.path) if path not in there}))
    return names


def _gone_from(there: Mapping[str, Entry], missing: Iterable[str]) -> Iterator[str]:
    """Yields the missing paths in existing directories; the others follow from the missing directory."""
    for path in missing:
        parent = there.get(os.path.dirname(path))
        if parent is not None and stat.S_ISDIR(parent.mode) and not parent.deleted:
            yield path
