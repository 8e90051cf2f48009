"""Times of directories in which CRIU makes something for a moment, so that forks can have them as they were.

CRIU gives what was deleted while a process held it, or ran it, a name again and takes it away, makes deleted
directories that processes are in, and binds Unix sockets anew. In a fork, the directories of all these were modified
just now, which `make`, `test -nt` and `find -newer` would tell.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tvsnap.host.attempts import AttemptFailed
from tvsnap.host.libc import closing
from tvsnap.model.errors import NotCheckpointable
from tvsnap.sandboxes import paths
from tvsnap.sandboxes.processes.borrowing import borrowed, file_of
from tvsnap.sandboxes.processes.procfs import DELETED, deleted_mappings, lines

_MOST = 1000
"""Beyond so many directories a state has no snapshot: processes decide how many there are."""
_INODE, _NAME = 6, 7
"""Columns of /proc/PID/net/unix."""


@dataclass(frozen=True, slots=True)
class DirectoryTimes:
    """Of one directory.

    Attributes:
        path: inside the sandbox.
        accessed, modified: ns since the epoch.
    """

    path: str
    accessed: int
    modified: int


def note(pids: Iterable[int], init: int) -> list[DirectoryTimes]:
    """Returns the times of all directories in which CRIU will make something when it restores processes.

    Args:
        pids: a sandbox's processes, which stand still, as the host sees them.
        init: its PID 1.

    Raises:
        NotCheckpointable: they are too many.
        OSError: PID 1 cannot be looked at.
    """
    noted: dict[str, DirectoryTimes] = {}
    seen: set[str] = set()
    bound = _bound_sockets(init)
    with paths.directory(f"/proc/{init}/root") as root:
        for path in itertools.chain.from_iterable(_made_again(pid, bound) for pid in pids):
            directory = os.path.dirname(path)
            if directory in seen:
                continue
            seen.add(directory)
            if len(seen) > _MOST:
                raise NotCheckpointable(f"processes hold deleted files or sockets in more than {_MOST} directories")
            found = _nearest(root, directory)
            noted[found.path] = found
    return list(noted.values())


def set_again(root: str | Path, noted: Iterable[DirectoryTimes]) -> None:
    """Sets times, where they are others.

    Raises:
        AttemptFailed: they cannot be set.
    """
    with paths.directory(root) as descriptor:
        for times in noted:
            _set(descriptor, times)


def _set(root: int, times: DirectoryTimes) -> None:
    try:
        with closing(paths.open_beneath(root, times.path)) as descriptor:
            about = os.fstat(descriptor)
            if (about.st_atime_ns, about.st_mtime_ns) != (times.accessed, times.modified):
                os.utime(f"/proc/self/fd/{descriptor}", ns=(times.accessed, times.modified))
    except OSError as error:
        raise AttemptFailed(f"the times of {times.path} cannot be set again: {error.strerror}") from None


def _nearest(root: int, directory: str) -> DirectoryTimes:
    """Returns the times of a directory, or of the nearest above it that is still there."""
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
    """Yields the paths at which CRIU makes something for a process."""
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
            with contextlib.suppress(FileNotFoundError):  # CRIU's own, just gone
                target = os.readlink(f"/proc/{pid}/fd/{number}")
                if target in bound:
                    target = _file_of_socket(pid, int(number))
                elif not target.endswith(DELETED):
                    continue
                if target.startswith("/"):
                    yield target


def _bound_sockets(init: int) -> set[str]:
    """Returns the sandbox's Unix sockets that have a file, as links in /proc/PID/fd name them."""
    found = set()
    for line in lines(f"/proc/{init}/net/unix"):
        fields = line.split(maxsplit=_NAME)
        if len(fields) > _NAME and not fields[_NAME].startswith("@"):
            found.add(f"socket:[{fields[_INODE]}]")
    return found


def _file_of_socket(pid: int, number: int) -> str:
    """Returns the path of the file that a Unix socket is bound to; empty if it has none."""
    with borrowed(pid, number) as its, file_of(its) as file:
        return "" if file is None else os.readlink(f"/proc/self/fd/{file}")
