"""Saves and restores the times of directories in which CRIU creates files temporarily.

For a restore, CRIU links files that were deleted while a process held or ran them and unlinks them again, creates
deleted directories that processes are in, and binds Unix sockets again. In a fork, all these directories would have
just been modified, which `make`, `test -nt` and `find -newer` would notice.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tvsnap.host.attempts import AttemptFailed
from tvsnap.host.libc import closing
from tvsnap.model.errors import NotCheckpointable
from tvsnap.sandboxes.kernel import paths
from tvsnap.sandboxes.kernel.borrowing import borrowed, file_of
from tvsnap.sandboxes.kernel.procfs import DELETED, deleted_mappings, lines
from tvsnap.sandboxes.repairs.repair import Fork, Frozen

_MOST = 1000
"""With more directories a state has no snapshot: their number is up to the processes."""
_INODE, _NAME = 6, 7
"""Columns of /proc/PID/net/unix."""


@dataclass(frozen=True, slots=True)
class DirectoryTimes:
    """The times of one directory, ns since the epoch; `path` is inside the sandbox."""

    path: str
    accessed: int
    modified: int


def note(pids: Iterable[int], init: int) -> list[DirectoryTimes]:
    """Returns the times of all directories in which CRIU will create something when it restores these processes.

    The processes (ids on the host) are frozen. Raises NotCheckpointable if there are too many directories, and OSError
    if PID 1 cannot be inspected.
    """
    noted: dict[str, DirectoryTimes] = {}
    directories: set[str] = set()
    bound = _bound_sockets(init)
    with paths.directory(f"/proc/{init}/root") as root:
        for path in itertools.chain.from_iterable(_made_again(pid, bound) for pid in pids):
            directory = os.path.dirname(path)
            if directory in directories:
                continue
            directories.add(directory)
            if len(directories) > _MOST:
                raise NotCheckpointable(f"processes hold deleted files or sockets in more than {_MOST} directories")
            times = _nearest(root, directory)
            noted[times.path] = times
    return list(noted.values())


def set_again(root: str | Path, noted: Iterable[DirectoryTimes]) -> None:
    """Sets the times of directories that differ; raises AttemptFailed if that is impossible."""
    with paths.directory(root) as descriptor:
        for times in noted:
            _set(descriptor, times)


@dataclass(frozen=True, slots=True)
class Directories:
    """See `Repair`: the times of directories in which CRIU creates something when it restores the processes."""

    times: tuple[DirectoryTimes, ...] = ()

    @classmethod
    def note(cls, frozen: Frozen) -> Directories | None:
        """See `Repair.note`."""
        times = note(frozen.pids, frozen.init)
        return cls(tuple(times)) if times else None

    @classmethod
    def from_json(cls, manifest: Mapping[str, Any]) -> Directories | None:
        """See `Repair.from_json`."""
        times = tuple(DirectoryTimes(**one) for one in manifest.get("directories", ()))
        return cls(times) if times else None

    def to_json(self) -> dict[str, Any]:
        """See `Repair.to_json`."""
        return {"directories": [asdict(one) for one in self.times]}

    def bring_back(self, fork: Fork) -> None:
        """See `Repair.bring_back`."""
        set_again(f"/proc/{fork.init}/root", self.times)


def _set(root: int, times: DirectoryTimes) -> None:
    try:
        with closing(paths.open_beneath(root, times.path)) as descriptor:
            about = os.fstat(descriptor)
            if (about.st_atime_ns, about.st_mtime_ns) != (times.accessed, times.modified):
                os.utime(f"/proc/self/fd/{descriptor}", ns=(times.accessed, times.modified))
    except OSError as error:
        raise AttemptFailed(f"the times of {times.path} cannot be set again: {error.strerror}") from None


def _nearest(root: int, directory: str) -> DirectoryTimes:
    """Returns the times of a directory, or of its nearest ancestor that still exists."""
    while True:
        try:
            descriptor = paths.open_beneath(root, directory)
        except OSError:
            if directory == "/":
                raise
            directory = os.path.dirname(directory)
            continue
        with closing(descriptor):
            about = os.fstat(descriptor)
            return DirectoryTimes(directory, about.st_atime_ns, about.st_mtime_ns)


def _made_again(pid: int, bound: set[str]) -> Iterator[str]:
    """Yields the paths at which CRIU will create something for a process."""
    for name in ("exe", "cwd", "root"):
        with contextlib.suppress(OSError):  # it has ended
            target = os.readlink(f"/proc/{pid}/{name}")
            if target.endswith(DELETED):
                yield target
    with contextlib.suppress(OSError):
        for line in deleted_mappings(pid):
            path = line.split(maxsplit=5)[5]
            if path.startswith("/"):
                yield path.replace("\\012", "\n")
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # a descriptor of CRIU's that was just closed
                target = os.readlink(f"/proc/{pid}/fd/{number}")
                if target in bound:
                    target = _file_of_socket(pid, int(number))
                elif not target.endswith(DELETED):
                    continue
                if target.startswith("/"):
                    yield target


def _bound_sockets(init: int) -> set[str]:
    """Returns the sandbox's Unix sockets that are bound to a file, as links in /proc/PID/fd name them."""
    targets = set()
    for line in lines(f"/proc/{init}/net/unix"):
        fields = line.split(maxsplit=_NAME)
        if len(fields) > _NAME and not fields[_NAME].startswith("@"):
            targets.add(f"socket:[{fields[_INODE]}]")
    return targets


def _file_of_socket(pid: int, number: int) -> str:
    """Returns the path of the file that a Unix socket is bound to; empty if it has none."""
    with borrowed(pid, number) as descriptor, file_of(descriptor) as file:
        return "" if file is None else os.readlink(f"/proc/self/fd/{file}")
