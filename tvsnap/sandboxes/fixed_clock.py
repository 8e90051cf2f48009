"""A sandbox's fixed clock and random seed: a file with parameters for the library that its programs load.

The library is in native/preload. The host writes the file before any process of the sandbox runs, and again for each
fork; it never reads a file that a sandbox has put there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvsnap.guest.protocol import FIXED
from tvsnap.host.libc import closing
from tvsnap.model.images import UID_BASE, Image
from tvsnap.sandboxes.kernel import paths

MARK = 24
"""Place in the file of the 8 bytes that a reseeding changes, for processes that have drawn numbers already (page.c)."""
SIZE = 65536  # bytes of the file, whatever its content: processes in a snapshot have it mapped (page.c)
_HEAD, _SPAN = struct.Struct("<IIQQQ"), struct.Struct("<qq")
_VERSION, _CLOCK, _SEED = 1, 1, 2
_MOST_SPANS = (SIZE - _HEAD.size) // _SPAN.size
_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a running sandbox; times are nanoseconds since 1970."""

    # The times at which this sandbox, or one that it was forked from, started running: by the machine's clock, and by
    # the sandbox's.
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def begun(cls, image: Image) -> Clock | None:
        """Returns the clock of a sandbox about to be started from an image; None if the image sets no clock."""
        return None if image.clock is None else cls(((time.time_ns(), image.clock * _SECOND),))

    def stop(self) -> StoppedClock:
        """Returns the clock's state for a snapshot taken now."""
        now = time.time_ns()
        real, shown = self.spans[-1]
        # If this machine's clock was set back meanwhile, the sandbox's clock stops.
        return StoppedClock(self.spans, max(now, real), shown + max(now - real, 0))


@dataclass(frozen=True, slots=True)
class StoppedClock:
    """The clock of a snapshot; times are nanoseconds since 1970."""

    spans: tuple[tuple[int, int], ...]  # see `Clock`
    # When it stopped, by the clock of the snapshot's machine and by the sandbox's
    real: int
    shown: int

    def go_on(self) -> Clock:
        """Returns the clock of a fork about to run; the time since the snapshot does not count."""
        now = max(time.time_ns(), self.real + 1)
        spans = (*self.spans, (now, self.shown))
        # The first span determines which times count as the image's.
        return Clock(spans if len(spans) <= _MOST_SPANS else (spans[0], *spans[2:]))

    @property
    def gap_s(self) -> float:
        return (time.time_ns() - self.real) / _SECOND

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> StoppedClock | None:
        """Reads the result of `dataclasses.asdict`, or None; raises ValueError, KeyError or TypeError for others."""
        if value is None:
            return None
        spans = tuple((int(real), int(shown)) for real, shown in value["spans"])
        return cls(spans, int(value["real"]), int(value["shown"]))


def is_fixed(image: Image) -> bool:
    """Whether an image sets a clock or a seed."""
    return image.clock is not None or image.random_seed is not None


def page(image: Image, clock: Clock | None) -> bytes:
    """Returns the content of the file, without the trailing zeros up to `SIZE`."""
    spans = clock.spans if clock else ()
    flags = (_CLOCK if clock else 0) | (_SEED if image.random_seed is not None else 0)
    head = _HEAD.pack(_VERSION, flags, image.random_seed or 0, len(spans), 0)
    return head + b"".join(_SPAN.pack(*span) for span in spans)


def write_page(upper: Path, template: Path, image: Image, clock: Clock | None) -> None:
    """Writes the file into the writable layer of a sandbox that does not run, if its image sets a clock or a seed.

    If the sandbox has replaced the file by something else, that stays, and the sandbox has no fixed clock or seed. The
    file's directories are created as in `template`, the layer that has them for all sandboxes.
    """
    if not is_fixed(image):
        return
    if not os.path.lexists(upper / "run"):
        _make_directories(upper, template)
    data = page(image, clock)
    with contextlib.suppress(OSError), paths.directory(upper) as root:
        with closing(paths.open_beneath(root, os.path.dirname(FIXED))) as directory:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(os.path.basename(FIXED), flags, 0o644, dir_fd=directory)
        with closing(file):
            about = os.fstat(file)
            if stat.S_ISREG(about.st_mode) and about.st_size in (0, SIZE):
                os.pwrite(file, data, 0)
                os.ftruncate(file, SIZE)
                os.fchown(file, UID_BASE, UID_BASE)


def _make_directories(upper: Path, template: Path) -> None:
    """Creates the file's parent directories as they are in the layer `template`."""
    parents = [*reversed(Path(FIXED).parents)][1:]
    about = upper.stat()
    for path in parents:
        (upper / path).mkdir()
        os.chown(upper / path, UID_BASE, UID_BASE)
    for path in reversed(parents):
        shutil.copystat(template / path, upper / path)
    os.utime(upper, ns=(about.st_atime_ns, about.st_mtime_ns))  # keep the times of the image's root
