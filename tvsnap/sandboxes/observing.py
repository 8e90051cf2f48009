"""What backends see of a sandbox, and fingerprints of it: its files and processes, however each came to see them."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

from tvsnap.host import native
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.observations import NO_SERVICE, FileChange, Process, Service
from tvsnap.sandboxes import paths

_SHELL_OWN_FILES = {
    **dict.fromkeys((0, 1, 2, 255), "/dev/pts/"),
    **dict.fromkeys((27, 28), "pipe:"),
    29: "/memfd:command",
}
"""How what descriptors of the shell are begins that are its terminal, PID 1's pipes, and a command's text."""
_COMMAND = 29
_REPORTING = frozenset({10, 11, 12, 30})
"""Descriptors that bash has for a moment more when it has just said its state: saved ones, and a command's output."""
_SETTLE_TRIES, _SETTLE_PAUSE = 10, 0.0005
_CHUNK = 1 << 20
MOST_RECORDS = 128 << 20
"""Bytes of a list of files: that of a million ordinary ones. Paths may have 4 KiB each, and nobody pays for those."""
UNSEEN = "?"
"""In place of a hash, of what cannot all be seen: it may have changed."""
_NO_LOCKS = f"{14695981039346656037:x}"  # HASH_START (hash.h)
SMALL_FILE = 64 * 1024
"""Bytes up to which a file is named by a digest of its contents."""
KINDS: dict[int, Literal["file", "directory", "symlink", "fifo", "socket"]] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One path, as lstat tells it.

    Attributes:
        path: absolute, as seen inside.
        mode: type and permission bits.
        size: bytes.
        mtime_ns, ctime_ns, atime_ns: nanoseconds.
        device: that a device node stands for.
        opaque: a directory of an upper layer that hides what the image has there.
        flags: of a directory, those that commands can set (chattr).
        attributes: a hash of its extended attributes and access control lists; `0` if it has none.
    """

    path: str
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    ctime_ns: int
    atime_ns: int
    inode: int
    device: int
    opaque: bool
    flags: int
    attributes: str

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
        return f"{self.inode}:{self.size}:{self.mtime_ns}:{self.ctime_ns}"


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


def walk(directory: Path) -> Iterator[Entry]:
    """Yields a directory of the host, as `/`, and all that lies below it, without following any link.

    Raises:
        InfrastructureError: part of it cannot be read, or there are more names than anybody looks at; told at the end.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOATIME)
    try:
        command = [str(native.INIT), "walk", "list", str(descriptor)]
        run = subprocess.Popen(command, pass_fds=[descriptor], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        os.close(descriptor)
    assert run.stdout is not None
    assert run.stderr is not None
    with run:
        try:
            size, rest = 0, b""
            while chunk := run.stdout.read(_CHUNK):
                if (size := size + len(chunk)) > MOST_RECORDS:
                    raise InfrastructureError(
                        f"the files of {directory} are too many: what there is to tell of them takes more than "
                        f"{MOST_RECORDS >> 20} MiB"
                    )
                records, rest = _whole(rest + chunk)
                yield from parse_entries(records)
        finally:
            run.kill()
        said = run.stderr.read()  # a line at most
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
    """A directory of an image.

    Attributes:
        owned: its mode, owner and group.
        mtime_ns: its modification time.
        bare: it has no extended attributes and no access control list.
        place: where it is on this machine.
    """

    owned: tuple[int, int, int]
    mtime_ns: int
    bare: bool
    place: Path

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
    """Whether an entry says anything: a directory is there also because something below it was touched once.

    Args:
        entry: of an upper layer.
        image: what lies below it.
        accessed: a directory's time of access counts.
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

    All of a directory counts but its size, its time of change, and its time of modification where that says nothing
    (`Entry.dated`) and was not set on purpose. A file's attributes are in its time of change.

    Args:
        entries: of an upper layer, in any order.
        image: what lies below it.
        accessed: to read does not change times of access: those of directories count, for they were set on purpose.
        dated: times of modification of directories count; False for those of a program that makes temporary files.
    """
    prints = []
    for entry in entries:
        moved = False
        if dated and entry.dated and stat.S_ISDIR(entry.mode):
            there = image.directory(entry.path)
            moved = there is None or there.mtime_ns != entry.mtime_ns
        if not moved and not differs(entry, image, accessed=accessed):
            continue
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
        # Names may be long: none is kept.
        prints.append(hashlib.sha256(line.encode("utf-8", "surrogateescape")).digest())
    return hashlib.sha256(b"".join(sorted(prints))).hexdigest()


def outside(entries: Iterable[Entry], directories: Collection[str], within: list[Entry]) -> Iterator[Entry]:
    """Yields the entries that do not lie in any of `directories`; adds those that do to `within`."""
    prefixes = tuple(f"{directory}/" for directory in directories)
    for entry in entries:
        if prefixes and (entry.path.startswith(prefixes) or entry.path in directories):
            within.append(entry)
        else:
            yield entry


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


@dataclass(frozen=True, slots=True)
class Activity:
    """What tells whether a process is the same as before, and has run since.

    Attributes:
        start: clock ticks after boot; with its id it names the process for good.
        state: as in ps.
        ran: nanoseconds of processor time that its tasks used.
        holds: what others can change of it while it sleeps, a hash (holds.c); `UNSEEN` if part of that cannot be seen.
        locks: a hash of its locks and leases alone.
    """

    pid: int
    start: int
    state: str
    ran: int
    holds: str
    locks: str


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A descriptor.

    Attributes:
        number: in its process.
        target: as /proc names it.
        position: in bytes.
        flags: of open(2), in octal.
    """

    number: int
    target: str
    position: int
    flags: str

    @property
    def of_the_shell(self) -> bool:
        """Whether it is one of those by which PID 1 talks to the shell, if it is the shell's."""
        own = _SHELL_OWN_FILES.get(self.number)
        return own is not None and self.target.startswith(own)


@dataclass(frozen=True, slots=True)
class ShellHold:
    """What the shell holds that it does not say of itself. It runs with every call, so its time says nothing.

    Attributes:
        start: clock ticks after boot.
        nice: its priority.
        processors: those it may use, as /proc shows them.
        cwd_deleted: its working directory is no more.
        files: all that it has open, by number.
        holds: what else there is to know of those that it does not have by itself, a hash (holds.c): their locks, what
            a deleted file holds, a terminal's modes; `UNSEEN` if part of that cannot be seen.
        locked: it has locked a file, or holds a lease on one.
    """

    pid: int
    start: int
    nice: int
    processors: str
    cwd_deleted: bool
    files: tuple[OpenFile, ...]
    holds: str = ""
    locked: bool = False

    @property
    def further_files(self) -> list[OpenFile]:
        """All but those by which PID 1 talks to the shell."""
        return [file for file in self.files if not file.of_the_shell]

    @property
    def fingerprint(self) -> str:
        """Changes with any of it."""
        # Where it stands in the file of its commands, no call can see.
        own = [(file.number, file.target, file.flags, file.number != _COMMAND and file.position) for file in self.files]
        return f"{self.pid} {self.start} {self.nice} {self.processors} {self.cwd_deleted} {own} {self.holds}"


def settled(look: Callable[[], tuple[OpenFile, ...]]) -> tuple[OpenFile, ...]:
    """Returns the shell's open files once it has undone the redirections of its report, which take a moment.

    Args:
        look: returns them as they are.
    """
    for _ in range(_SETTLE_TRIES):
        files = look()
        if _REPORTING.isdisjoint(file.number for file in files):
            break
        time.sleep(_SETTLE_PAUSE)  # or they are a command's own: then they stay
    return files


def descendants(parents: Mapping[int, int], roots: Iterable[int]) -> frozenset[int]:
    """Returns those processes that are one of `roots` or descend from one.

    Args:
        parents: each process's parent, by id.
    """
    found = set(roots).intersection(parents)
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return frozenset(found)


def processes_fingerprint(others: Iterable[Activity], shell: ShellHold | None, serving: Iterable[Activity] = ()) -> str:
    """Returns a hash that changes when a process starts, ends, stops or has run.

    Args:
        others: all but PID 1 and the shell, in any order.
        shell: None if it cannot be told; then nothing is equal to the hash.
        serving: the first processes of a service: whether they have run does not count, what they have locked does.
    """
    others, serving = list(others), list(serving)
    if shell is None or UNSEEN in (shell.holds, *(one.holds for one in others), *(one.locks for one in serving)):
        return secrets.token_hex()
    hasher = hashlib.sha256(shell.fingerprint.encode("utf-8", "surrogateescape"))
    for one in sorted(serving, key=lambda one: one.pid):
        hasher.update(f"\nserving {one.pid} {one.start} {one.state in 'Tt'} {one.state == 'Z'} {one.locks}".encode())
    for one in sorted(others, key=lambda one: one.pid):
        stands = f"{one.state in 'Tt'} {one.state == 'Z'}"
        hasher.update(f"\n{one.pid} {one.start} {stands} {one.ran} {one.holds}".encode())
    return hasher.hexdigest()


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """The live processes of a sandbox but for its PID 1.

    Attributes:
        processes: all of them, by id.
        activities: of the same.
        shell: None if it has ended or may not be looked at.
    """

    processes: tuple[Process, ...]
    activities: tuple[Activity, ...]
    shell: ShellHold | None

    @property
    def others(self) -> tuple[Process, ...]:
        """All but the shell."""
        return tuple(one for one in self.processes if self.shell is None or one.pid != self.shell.pid)

    def serving(self, service: Service) -> frozenset[int]:
        """Returns the ids of the processes of a service."""
        return descendants({one.pid: one.parent for one in self.processes}, service.processes)

    def fingerprint(self, service: Service = NO_SERVICE) -> str:
        """See `processes_fingerprint`."""
        shell = self.shell
        serving = self.serving(service)
        return processes_fingerprint(
            (one for one in self.activities if shell and one.pid != shell.pid and one.pid not in serving),
            shell,
            (one for one in self.activities if one.pid in service.processes),
        )


def parse_processes(records: bytes) -> ProcessTable:
    """Returns what `tvsnap-init processes` printed (census.c).

    Raises:
        InfrastructureError: something else printed this, as it may where what a sandbox runs took its place.
    """
    processes: list[Process] = []
    activities: list[Activity] = []
    shell = None
    fields = records.split(b"\0")
    try:
        for numbers, text in zip(fields[0::2], fields[1::2], strict=False):
            words = numbers.decode().split()
            if words[0] == "shell":
                pid, start, nice, processors, gone, holds, locks = words[1:]
                files = tuple(map(_parse_file, os.fsdecode(text).split("\n")[:-1]))
                locked = UNSEEN in (holds, locks) or locks != _NO_LOCKS
                shell = ShellHold(int(pid), int(start), int(nice), processors, gone == "1", files, holds, locked)
                continue
            pid, parent, state, start, ran, memory, holds, locks = words
            processes.append(Process(int(pid), int(parent), state, text.decode(errors="replace"), int(memory)))
            activities.append(Activity(int(pid), int(start), state, int(ran), holds, locks))
    except (ValueError, IndexError):
        raise InfrastructureError(f"a list of processes is none: {records[:40]!r}") from None
    return ProcessTable(tuple(sorted(processes, key=lambda one: one.pid)), tuple(activities), shell)


def _parse_file(line: str) -> OpenFile:
    number, position, flags, target = line.split(" ", 3)
    plain = re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], target)
    return OpenFile(int(number), plain, int(position), flags)
