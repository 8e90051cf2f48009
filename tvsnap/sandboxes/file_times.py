"""Gives files that a repeated call has made the modification times that they had when the call was recorded.

When calls are repeated to rebuild a state, they follow one another immediately, whereas the original rollout spent time
thinking in between. Programs depend on this time: `make` builds what is older than its source, Python recompiles what
changed in another second, `find -newermt` finds recent files. So the modification times of all that a call has written
are moved to the time of the recorded call, in the same order. Times of change (ctime) cannot be set.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tvsnap.host.libc import closing
from tvsnap.model.errors import InfrastructureError
from tvsnap.sandboxes import looks, paths
from tvsnap.sandboxes.observing import Entry

NS = 1_000_000_000
_CLOCK_REALTIME_COARSE = 5
"""Linux's clock of files' times (clock_gettime(2)), for which Python has no name."""
TICK_NS = 10_000_000
"""The steps of files' times: for them, the kernel reads the clock only a few hundred times a second."""


class Span(NamedTuple):
    """An interval, in nanoseconds since the epoch."""

    since: int
    until: int

    def move(self, moment: int, to: Span) -> int:
        """Returns the time that has the same relative position in another interval as `moment` has in this one."""
        part = (moment - self.since) / max(self.until - self.since, 1)
        return to.since + round(part * (to.until - to.since))


def file_time() -> int:
    """Returns the time that a file would have that was written now, nanoseconds since the epoch.

    It lags behind the clock by a tick of the kernel, and by more on a machine that is itself virtual and waits for its
    processor.
    """
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


def recorded_span(created: float, duration: float, earlier: int) -> Span:
    """Returns the interval in which a recorded call wrote its files, as far as is known.

    Args:
        created: when the call was recorded, seconds since the epoch.
        duration: its duration, seconds.
        earlier: when the call before it ended, nanoseconds since the epoch; the interval begins after that.
    """
    until = max(int(created * NS), earlier + 2 * TICK_NS)
    return Span(max(until - int(duration * NS), earlier + TICK_NS), until)


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
    """Turns errors while times are moved into InfrastructureError: not all files could be inspected."""
    try:
        yield
    except (looks.NotSeen, OSError) as error:
        raise InfrastructureError(f"files could not be given the times of when they were written: {error}") from error


def redate(root: int, entries: Iterable[Entry], span: tuple[int, int], to: tuple[int, int]) -> None:
    """Moves the modification times of files that are in the interval `span` into the interval `to`.

    Files whose times cannot be set (`chattr +i`), or that are gone, are skipped. Directories in which merely reading
    creates and deletes files keep their time.

    Args:
        root: a descriptor of the sandbox's root directory, of its mounted overlay.
        entries: the existing files.
        span: when the call was repeated, from the `file_time` of its beginning.
        to: when the call was made that was recorded.
    """
    written, recorded = Span(*span), Span(*to)
    found = [entry for entry in entries if not entry.deleted and written.since <= entry.mtime_ns <= written.until]
    for entry in sorted(found, key=lambda entry: entry.path, reverse=True):  # the contents of a directory first
        if stat.S_ISDIR(entry.mode) and not entry.dated:
            continue
        with contextlib.suppress(OSError):
            _set_time(root, entry, written.move(entry.mtime_ns, recorded))


def _set_time(root: int, entry: Entry, mtime_ns: int) -> None:
    times = (entry.atime_ns, mtime_ns)
    if stat.S_ISDIR(entry.mode):
        with closing(paths.open_beneath(root, entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME)) as found:
            os.utime(found, ns=times)
        return
    folder, name = os.path.split(entry.path)
    with closing(paths.open_beneath(root, folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME)) as found:
        os.utime(name, ns=times, dir_fd=found, follow_symlinks=False)
