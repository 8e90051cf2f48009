"""Verifies that files are unchanged: checksums of contents, a seal over a tree, and sealed JSON.

This guards against faults, not against an attacker who can write to the data directory: CRC-32 detects any flipped bit
or burst, and all but one in four thousand million of other errors, several times as fast as a cryptographic hash.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tvsnap.host.attempts import AttemptFailed
from tvsnap.host.libc import closing
from tvsnap.model.calls import canonical_json
from tvsnap.model.errors import SnapshotUnusable
from tvsnap.sandboxes.looks import native_look

_CHUNK = 1 << 20
_SMALL = 16384
_LONGEST_REASON = 300

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""Errors of writing that do not end by themselves after a moment."""
_DAMAGED = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EIO, errno.EUCLEAN, errno.ESTALE}
"""Errors of damaged files; a file system reports EIO if a checksum does not match."""

Stamp = tuple[int, int, int, int, int]
"""Inode, size, modification and change time (ns), and number of names of a file: changes whenever its contents do.

A plain tuple, because a fork takes and compares dozens.
"""


def is_of_same(one: Stamp, other: Stamp) -> bool:
    """Whether two stamps are of the same contents.

    The time of change does not count if a file has several names: it moves whenever a snapshot that shares the file
    is taken or deleted.
    """
    return one == other or (one[:3] == other[:3] and max(one[4], other[4]) > 1)


def stamp(path: str | Path, directory: int | None = None) -> Stamp:
    """Returns the stamp of a file, or of a link itself; `path` may be relative to `directory`, a descriptor."""
    about = os.stat(path, dir_fd=directory, follow_symlinks=False)
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_nlink


def open_regular(path: str | Path) -> io.FileIO:
    """Opens a regular file for reading, without following a link, or waiting for a pipe in its place.

    Raises OSError if it cannot be opened, and ValueError if it is something else.
    """
    return io.FileIO(_open_regular(path, None))


def _open_regular(path: str | Path, directory: int | None) -> int:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise ValueError(f"{os.path.basename(path)} is no regular file")
    return file


@contextlib.contextmanager
def reading(snapshot: str) -> Iterator[None]:
    """Turns errors of reading a snapshot into SnapshotUnusable (it is missing or damaged) or AttemptFailed.

    The latter is raised if the machine lacks something, such as descriptors.
    """
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, OSError) and error.errno not in _DAMAGED:
            raise AttemptFailed(f"snapshot {snapshot} cannot be read: {error}", machine=True) from None
        raise SnapshotUnusable(f"snapshot {snapshot} is missing or damaged: {str(error)[:_LONGEST_REASON]}") from None


def checksum(path: str | Path, directory: int | None = None) -> tuple[int, int]:
    """Returns the size (bytes) and the CRC-32 of a regular file; see `open_regular`."""
    size = crc = 0
    with closing(_open_regular(path, directory)) as file:
        chunk = os.read(file, _SMALL)
        while chunk:
            size += len(chunk)
            crc = zlib.crc32(chunk, crc)
            # A short read is at the end of the file, because nobody writes to it.
            chunk = os.read(file, _CHUNK) if size >= _SMALL else b""
    return size, crc


def seal(tree: Path) -> tuple[int, int]:
    """Inspects a tree of files that nobody writes to, without reading them or following links.

    Returns the bytes that they take on the disk, and a seal that changes when a file in it is written to, added,
    removed, renamed or replaced, or gets other permissions or another owner. Raises OSError if part is unreadable, and
    NotSeen beyond the limit of time.
    """
    with closing(os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
        return native_look.seal(root)


def to_sealed_json(values: Mapping[str, Any]) -> str:
    """Returns plain JSON values as text that includes its own checksum."""
    text = canonical_json(values)
    return f'{{"crc32": {zlib.crc32(text.encode())}, "values": {text}}}'


def from_sealed_json(text: str | bytes) -> dict[str, Any]:
    """Returns the argument of `to_sealed_json`; raises ValueError, KeyError or TypeError if this is something else."""
    sealed = json.loads(text)
    values: dict[str, Any] = sealed["values"]
    if sealed["crc32"] != zlib.crc32(canonical_json(values).encode()):
        raise ValueError("its checksum is another")
    return values
