"""A sandbox's fixed clock and seed: what the library that its programs load is told (native/preload).

The file is the host's. It is written before any process of the sandbox runs, and again for each fork; what a sandbox
has made of its own is never read.
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
from tvsnap.model.images import UID_BASE, Image
from tvsnap.sandboxes import paths

SIZE = 65536  # bytes of the file, whatever is in it: processes of a snapshot have it mapped (page.c)
_HEAD, _SPAN = struct.Struct("<IIQQQ"), struct.Struct("<qq")
_VERSION, _CLOCK, _SEED = 1, 1, 2
_MOST_SPANS = (SIZE - _HEAD.size) // _SPAN.size
_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a running sandbox; times are nanoseconds since 1970."""

    # The times at which it or what it comes from began to run on a machine, each by that machine's clock and by the
    # sandbox's own
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def begun(cls, image: Image) -> Clock | None:
        """The clock of a sandbox that is about to be started from an image; None for an image that sets none."""
        return None if image.clock is None else cls(((time.time_ns(), image.clock * _SECOND),))

    def stop(self) -> StoppedClock:
        """Notes what it shows, for a snapshot that is taken at this moment."""
        now = time.time_ns()
        real, shown = self.spans[-1]
        # Where this machine's clock was set back meanwhile, the sandbox's has not gone on.
        return StoppedClock(self.spans, max(now, real), shown + max(now - real, 0))


@dataclass(frozen=True, slots=True)
class StoppedClock:
    """The clock of a snapshot; times are nanoseconds since 1970."""

    spans: tuple[tuple[int, int], ...]  # see `Clock`
    # Real and shown: when it stopped, by the clock of the machine that it was taken on, and what it showed then
    real: int
    shown: int

    def go_on(self) -> Clock:
        """Returns the clock of a fork that is about to run: what has passed since the snapshot does not count."""
        now = max(time.time_ns(), self.real + 1)
        spans = (*self.spans, (now, self.shown))
        # The first says which times are the image's.
        return Clock(spans if len(spans) <= _MOST_SPANS else (spans[0], *spans[2:]))

    @property
    def gap_s(self) -> float:
        return (time.time_ns() - self.real) / _SECOND

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> StoppedClock | None:
        """Reads what `dataclasses.asdict` made of one; None for None.

        Raises:
            ValueError, KeyError, TypeError: it is none of that.
        """
        if value is None:
            return None
        spans = tuple((int(real), int(shown)) for real, shown in value["spans"])
        return cls(spans, int(value["real"]), int(value["shown"]))


def is_fixed(image: Image) -> bool:
    """Whether an image sets a clock or a seed."""
    return image.clock is not None or image.random_seed is not None


def page(image: Image, clock: Clock | None) -> bytes:
    """Returns what is in the file, without the zeros up to its `SIZE`."""
    spans = clock.spans if clock else ()
    flags = (_CLOCK if clock else 0) | (_SEED if image.random_seed is not None else 0)
    head = _HEAD.pack(_VERSION, flags, image.random_seed or 0, len(spans), 0)
    return head + b"".join(_SPAN.pack(*span) for span in spans)


def write_page(upper: Path, template: Path, image: Image, clock: Clock | None) -> None:
    """Writes the file into the writable layer of a sandbox that does not run, if its image sets a clock or a seed.

    Where a sandbox has put something else in its place, that stays: such a sandbox goes without. The directory of the
    file is made as it is in `template`, the layer that has it for all sandboxes.
    """
    if not is_fixed(image):
        return
    if not os.path.lexists(upper / "run"):
        _make_directories(upper, template)
    data = page(image, clock)
    with contextlib.suppress(OSError), paths.directory(upper) as root:
        with paths.closing(paths.open_beneath(root, os.path.dirname(FIXED))) as directory:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(os.path.basename(FIXED), flags, 0o644, dir_fd=directory)
        with paths.closing(file):
            about = os.fstat(file)
            if stat.S_ISREG(about.st_mode) and about.st_size in (0, SIZE):
                os.pwrite(file, data, 0)
                os.ftruncate(file, SIZE)
                os.fchown(file, UID_BASE, UID_BASE)


def _make_directories(upper: Path, template: Path) -> None:
    """Makes those that the file lies in, as they are in a layer below."""
    parents = [*reversed(Path(FIXED).parents)][1:]
    about = upper.stat()
    for path in parents:
        (upper / path).mkdir()
        os.chown(upper / path, UID_BASE, UID_BASE)
    for path in reversed(parents):
        shutil.copystat(template / path, upper / path)
    os.utime(upper, ns=(about.st_atime_ns, about.st_mtime_ns))  # it is as old as the image's root
