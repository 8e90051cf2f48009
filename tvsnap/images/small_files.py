"""Reads small untrusted files, such as descriptions, with a limit on their size."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from tvsnap.model.limits import MIB

MOST = 4 * MIB
"""Bytes."""


def read_small(path: Path) -> bytes:
    """Returns a file's contents; raises OSError if it is unreadable, no regular file, or larger than 4 MiB."""
    # Opening something else might block, and a sparse file can have any size.
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            number = errno.EISDIR if stat.S_ISDIR(os.fstat(stream.fileno()).st_mode) else errno.EINVAL
            raise OSError(number, "is no regular file", str(path))
        content = stream.read(MOST + 1)
    if len(content) > MOST:
        raise OSError(errno.EFBIG, f"holds more than {MOST >> 20} MiB", str(path))
    return content


def read_small_text(path: Path, errors: str = "strict") -> str:
    """Returns a file's UTF-8 text with newlines as the only line ends.

    Raises OSError as `read_small` does, and UnicodeDecodeError unless `errors` prevents it.
    """
    return read_small(path).decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")
