"""The modification times of the files that a call has changed: they are part of the state that the call led to.

If a call is executed once more and leaves the same behind, its files have other times: later ones, or ones that it
set relative to the present (`touch -d '1 hour ago'`). Programs depend on these: `make` builds files older than their
source, Python recompiles files changed in another second, `find -newermt` finds recent files. So the files are then
given the times of the first execution, which answers have shown. Times of change (ctime) cannot be set.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping

from tvsnap.host.libc import closing
from tvsnap.model.errors import InfrastructureError
from tvsnap.sandboxes.kernel import allowance, paths
from tvsnap.sandboxes.looks.observing import Entry

_CLOCK_REALTIME_COARSE = 5
"""Linux's clock of files' times (clock_gettime(2)), for which Python has no name."""


def file_time() -> int:
    """Returns the time that a file would have that was written now, nanoseconds since the epoch.

    It lags behind the clock by a tick of the kernel, and by more on a machine that is itself virtual and waits for its
    processor.
    """
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
    """Turns errors while times are read or set into InfrastructureError, because not all files could be inspected."""
    try:
        yield
    except (allowance.NotSeen, OSError) as error:
        raise InfrastructureError(f"files could not be given the times of when they were written: {error}") from error


def changed_since(moment: int, entries: Iterable[Entry]) -> dict[str, int]:
    """Returns the modification times of the files that were changed, or whose times were set, since a moment.

    Directories in which merely reading creates and deletes files are left out.

    Args:
        moment: a `file_time`.
        entries: the existing files.

    Returns:
        The times in nanoseconds since the epoch, by path.
    """
    return {
        entry.path: entry.mtime_ns
        for entry in entries
        if entry.ctime_ns >= moment and not entry.deleted and (entry.dated or not stat.S_ISDIR(entry.mode))
    }


def set_again(root: int, times: Mapping[str, int]) -> None:
    """Sets the modification times of files.

    Missing files, and those with times that cannot be set (`chattr +i`), are skipped.

    Args:
        root: a descriptor of the sandbox's root directory, of its mounted overlay.
        times: the result of `changed_since` for another sandbox with the same files.
    """
    for path, mtime_ns in times.items():
        folder, name = os.path.split(path)
        with (
            contextlib.suppress(OSError),
            closing(paths.open_beneath(root, folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME)) as descriptor,
        ):
            about = os.stat(name or ".", dir_fd=descriptor, follow_symlinks=False)
            if about.st_mtime_ns != mtime_ns:
                os.utime(name or ".", ns=(about.st_atime_ns, mtime_ns), dir_fd=descriptor, follow_symlinks=False)
