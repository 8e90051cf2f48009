"""Observations of a sandbox: outcomes of commands, fingerprints, processes, changed files, snapshots."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Captures:
    """The contents of a snapshot.

    Attributes:
        files: the files that differ from the image; always true.
        processes: all live processes.
        shell: the idle persistent shell.
    """

    files: bool = True
    processes: bool = False
    shell: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one command in a sandbox.

    Attributes:
        output: raw bytes of standard output and standard error, in the order in which they were written.
        exit_code: the exit status; 128 plus the signal's number if a signal ended the command; None if it timed out
            or was not run.
        duration: seconds, as measured inside the sandbox.
        timed_out: it was ended by its timeout. Its processes are gone, and the sandbox lives on.
        blocked: it used no processor time in the second half of its time: it merely waited.
        truncated: its output was longer than `Limits.output` and was cut in the middle.
        shell_lost: the persistent shell ended with this command; a fresh one has taken its place.
        errors: raw bytes of standard error, if that was to be kept separate from `output`; else None.
        errors_truncated: that was longer than `Limits.output` and was cut in the middle.
    """

    output: bytes
    exit_code: int | None
    duration: float
    timed_out: bool = False
    blocked: bool = False
    truncated: bool = False
    shell_lost: bool = False
    errors: bytes | None = None
    errors_truncated: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """One of several commands that run side by side.

    Attributes:
        command: the command, for a fresh bash.
        cwd: the directory in which it starts; by default the image's working directory.
        env: environment variables in addition to the image's.
        separate: keep standard error separate from the output.
    """

    command: str
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    separate: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of a sandbox that belong to a service of an environment, such as a database, which observes them.

    Attributes:
        processes: ids, inside; their descendants belong to it, too.
        directories: those that only the service writes; absolute, inside.
    """

    processes: frozenset[int] = frozenset()
    directories: tuple[str, ...] = ()


NO_SERVICE = Service()


@dataclass(frozen=True, slots=True)
class Observation:
    """Fingerprints of a sandbox at one moment; two equal ones mean that nothing changed in between.

    A part that could not be read is a fresh random value, so that it counts as changed.

    Attributes:
        files: of all files that differ from the image, except for `data`.
        processes: of live processes and whether they ran; of those of a service, only that they live.
        shell: of the persistent shell's variables, functions, options, cwd, ...
        data: of the files that only a service writes.
        service: the service's own fingerprint of its state.
        serving: the number of processes of the service; not compared.
        alone: only the idle shell and the service live; False if that is not known. Not compared.
        active: the reason why something may change by itself, without any call: `process 18 (make) is running`; None
            if nothing can. Not compared.
        quiet_s: seconds from the observation on during which nothing changes by itself: infinite if `active` is None, 0
            if something runs, in between if everything active waits for a known time. Not compared.
        hidden: commands of the shell that may change something that the shell does not report, see `shell_words`. Not
            compared.
        chance: since the last observation, the service may have depended on chance, the clock or the like without a
            sign of it in the calls' text (a column's default, a trigger, a view): if the call changed nothing, its
            value must not be shared, and if it did, a replay does not lead to the same state. Not compared.
        reproducible: since the last observation, the service executed one call that changed something, and this call is
            known to depend only on its state: made again there, it leaves the same behind. False if that is not known.
            Not compared.
    """

    files: str
    processes: str
    shell: str
    data: str = ""
    service: str = ""
    serving: int = field(default=0, compare=False)
    alone: bool = field(default=False, compare=False)
    active: str | None = field(default=None, compare=False)
    quiet_s: float = field(default=math.inf, compare=False)
    hidden: frozenset[str] = field(default=frozenset(), compare=False)
    chance: bool = field(default=False, compare=False)
    reproducible: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Process:
    """One live process of a sandbox.

    Attributes:
        pid: its id inside the sandbox.
        parent: the id of its parent inside the sandbox.
        state: its state, as one letter, as in /proc/PID/stat (`R` runs, `S` sleeps, `T` is stopped, ...).
        command: its command line.
        memory: its resident memory in bytes.
        unshared: the part of that which no file, no other process and no snapshot has; None if that is not known.
    """

    pid: int
    parent: int
    state: str
    command: str
    memory: int
    unshared: int | None = None


@dataclass(frozen=True, slots=True)
class FileChange:
    """The difference of one path from the image.

    Attributes:
        kind: `file`, `directory`, `symlink`, `fifo`, `socket`, or `deleted`.
        size: its size in bytes.
        mode: its permission bits.
        uid: the user that owns it, as seen inside.
        gid: the group that owns it, as seen inside.
        mtime_ns: its modification time in nanoseconds since the epoch.
        identity: a text that is equal for two files only if their contents are (a digest for a small file, inode and
            times for a larger one).
    """

    kind: Literal["file", "directory", "symlink", "fifo", "socket", "deleted"]
    size: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    identity: str = ""


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One name in a folder.

    Attributes:
        name: the name; bytes that are not UTF-8 are lone surrogates, as `os.fsdecode` makes them.
        kind: its type.
        mode: its permission bits.
        uid: the user that owns it, as seen inside.
        gid: the group that owns it, as seen inside.
        size: its size in bytes.
        mtime_ns: its modification time in nanoseconds since the epoch.
        target: the target of a symbolic link; None for other kinds, and if it cannot be read.
    """

    name: str
    kind: Literal["file", "directory", "symlink", "fifo", "socket", "character device", "block device"]
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    target: str | None = None


@dataclass(frozen=True, slots=True)
class FolderListing:
    """The entries of one folder.

    Attributes:
        entries: the entries by name.
        cut: whether there are more; the choice of entries is random then.
    """

    entries: tuple[FolderEntry, ...]
    cut: bool


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot on disk.

    Attributes:
        id: the backend's name for it.
        captures: its contents.
        size: bytes on disk.
        duration: seconds that it took to take it.
        frozen: seconds for which the sandbox was stopped meanwhile.
        processes: the command lines of processes in the sandbox, except its PID 1 and its idle shell.
    """

    id: str
    captures: Captures
    size: int
    duration: float
    frozen: float
    processes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TerminalBytes:
    """The output of a sandbox's terminal.

    Attributes:
        data: all of it; only the last part if it was much.
        columns: the width of the terminal in cells.
        rows: the height of the terminal in cells.
    """

    data: bytes
    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Stillness:
    """The time during which nothing changes by itself in a sandbox.

    Attributes:
        since_s: seconds for which nothing has run in it.
        until_s: seconds from now during which nothing will.
    """

    since_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class ReapReport:
    """The numbers of remains of dead processes that were deleted.

    Attributes:
        sandboxes: sandboxes.
        snapshots: unfinished snapshots.
        temporary: other files and directories.
    """

    sandboxes: int = 0
    snapshots: int = 0
    temporary: int = 0
