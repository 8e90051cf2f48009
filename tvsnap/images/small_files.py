"""Reads small files that somebody hands in or that lie in an image: descriptions, and never more than one can be."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from tvsnap.model.limits import MIB

MOST = 4 * MIB
"""Bytes."""


def read_small(path: Path) -> bytes:
    """Returns what a file holds.

    Raises:
        OSError: it cannot be read, is no regular file, or holds more than 4 MiB.
    """
    # What is no file might never open, and a file with a hole can be of any size.
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            number = errno.EISDIR if stat.S_ISDIR(os.fstat(stream.fileno()).st_mode) else errno.EINVAL
            raise OSError(number, "is no regular file", str(path))
        found = stream.read(MOST + 1)
    if len(found) > MOST:
        raise OSError(errno.EFBIG, f"holds more than {MOST >> 20} MiB", str(path))
    return found


def read_small_text(path: Path, errors: str = "strict") -> str:
    """As `read_small`; returns text in UTF-8, its lines ended by newlines alone.

    Raises:
        OSError: see `read_small`.
        UnicodeDecodeError: it is no such text, unless `errors` says otherwise.
    """
    return read_small(path).decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")
