"""Gives files that a call has made the times that they had when the call was recorded.

Calls that are made again to rebuild a state follow one another at once. A rollout that made them itself thought in
between, and what goes by the time of files goes by that: `make` builds what is older than its source, Python compiles
anew what was changed in another second, `find -newermt` finds what is young. So the modification times of all that a
call has written are moved to where they were when it was recorded, in the same order. Times of change cannot be set.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tvsnap.model.errors import InfrastructureError
from tvsnap.sandboxes import looks, paths
from tvsnap.sandboxes.observing import Entry

NS = 1_000_000_000
TICK_NS = 10_000_000
"""So much behind the clock may the times of files be: for them, the kernel reads it a few hundred times a second."""


class Span(NamedTuple):
    """From one moment to another, nanoseconds since the epoch."""

    since: int
    until: int

    def move(self, moment: int, to: Span) -> int:
        """Returns the moment of another span that lies in it as `moment` does in this one."""
        part = (moment - self.since) / max(self.until - self.since, 1)
        return to.since + round(part * (to.until - to.since))


def recorded_span(created: float, duration: float, earlier: int) -> Span:
    """Returns when the files of a recorded call were written, as far as is known.

    Args:
        created: when it was recorded, seconds since the epoch.
        duration: what it took, seconds.
        earlier: until when the call before it was at work, nanoseconds since the epoch: it lies after that.
    """
    until = max(int(created * NS), earlier + 2 * TICK_NS)
    return Span(max(until - int(duration * NS), earlier + TICK_NS), until)


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
    """A block that moves times. Raises InfrastructureError where not all files could be looked at."""
    try:
        yield
    except (looks.NotSeen, OSError) as error:
        raise InfrastructureError(f"files could not be given the times of when they were written: {error}") from error


def redate(root: int, entries: Iterable[Entry], span: tuple[int, int], to: tuple[int, int]) -> None:
    """Moves the modification times of files that lie within a span to another one.

    What nobody can set (`chattr +i`), or what is gone, is passed over. Directories in which files come and go with a
    mere look keep their time.

    Args:
        root: a descriptor of the sandbox's root directory, of its mounted overlay.
        entries: the files that there are.
        span: in which the call was made now.
        to: in which it was made when it was recorded.
    """
    written, recorded = Span(span[0] - TICK_NS, span[1]), Span(*to)
    found = [entry for entry in entries if not entry.deleted and written.since <= entry.mtime_ns <= written.until]
    for entry in sorted(found, key=lambda entry: entry.path, reverse=True):  # what lies in a directory first
        if stat.S_ISDIR(entry.mode) and not entry.dated:
            continue
        with contextlib.suppress(OSError):
            _set_time(root, entry, written.move(entry.mtime_ns, recorded))


def _set_time(root: int, entry: Entry, mtime_ns: int) -> None:
    times = (entry.atime_ns, mtime_ns)
    if stat.S_ISDIR(entry.mode):
        with paths.closing(paths.open_beneath(root, entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME)) as found:
            os.utime(found, ns=times)
        return
    folder, name = os.path.split(entry.path)
    with paths.closing(paths.open_beneath(root, folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME)) as found:
        os.utime(name, ns=times, dir_fd=found, follow_symlinks=False)
