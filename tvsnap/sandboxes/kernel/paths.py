"""Opens files of a sandbox safely, although its processes may place links anywhere and rename things.

Everything on the host that inspects a sandbox's files from outside opens them here: the kernel resolves the path within
a directory (`openat2`), so that a directory which is replaced by a link to `/etc` in between leads nowhere. A file
is first inspected by an O_PATH descriptor, so that a FIFO or a device in its place has no effect. All calls
use ctypes, which lets other threads run meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tvsnap.host.libc import closing
from tvsnap.model.errors import UsageError

_libc = ctypes.CDLL(None, use_errno=True)
_OPENAT2 = 437
_NO_MAGICLINKS, _NO_SYMLINKS, _IN_ROOT = 0x02, 0x04, 0x10
_TRIES = 100
_CHUNK = 1 << 20


def directory(path: str | Path) -> AbstractContextManager[int]:
    """Yields an O_PATH descriptor of a directory of the host, below which paths are opened."""
    return closing(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))


def open_in_root(root: int, path: str) -> int:
    """Opens `path` (O_PATH) as a process with the root directory `root` would: no link leads out of it.

    Returns a close-on-exec descriptor; raises OSError as open() does.
    """
    return _openat2(root, path, os.O_PATH, _IN_ROOT | _NO_MAGICLINKS)


def open_beneath(root: int, path: str, flags: int = os.O_PATH) -> int:
    """Opens `path` below a directory without following symbolic links; with O_PATH, `path` may be one itself.

    Returns a close-on-exec descriptor; raises OSError as open() does, ELOOP if a link is on the way.
    """
    return _openat2(root, path, flags | os.O_NOFOLLOW, _IN_ROOT | _NO_SYMLINKS)


def _openat2(root: int, path: str, flags: int, resolve: int) -> int:
    if "\0" in path:  # the kernel would take the text before it for the path
        raise UsageError(f"path must contain no null character: {path!r}")
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, resolve)
    for _ in range(_TRIES):
        descriptor: int = _libc.syscall(_OPENAT2, root, os.fsencode(path), how, len(how))
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: something was renamed during the path lookup
            break
    raise OSError(number, os.strerror(number), path)


def topmost(layers: Iterable[Path], path: str) -> tuple[Path, os.stat_result] | None:
    """Finds a path in the topmost layer of an overlay that has it.

    Returns its location on the host, which contains no link except possibly itself, and its lstat; None if the overlay
    has no such path.

    Args:
        layers: their directories, topmost first, which do not change any more.
        path: the path below them.
    """
    for layer in layers:
        try:
            with directory(layer) as root, closing(open_beneath(root, path or "/")) as entry:
                about = os.fstat(entry)
        except FileNotFoundError:
            continue
        except OSError:  # something that is no directory is on the way, and hides lower layers
            return None
        return None if stat.S_ISCHR(about.st_mode) and about.st_rdev == 0 else (Path(f"{layer}{path}"), about)
    return None


def scan(root: int, path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yields everything below a directory, in any order, without following links, except files deleted meanwhile.

    `path`, the directory to begin with, is relative to `root`; so are the paths that are yielded, each with its lstat.
    """
    waiting = [path.rstrip("/")]
    while waiting:
        here = waiting.pop()
        try:
            descriptor = open_beneath(root, here or "/", os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        with closing(descriptor), os.scandir(descriptor) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    yield f"{here}/{entry.name}", about
                    if stat.S_ISDIR(about.st_mode):
                        waiting.append(f"{here}/{entry.name}")


def contents(root: int, path: str, most: int) -> str | None:
    """Returns a link's target or a file's digest; None if it is neither, larger than `most` bytes, or gone."""
    try:
        with closing(open_beneath(root, path)) as entry:
            about = os.fstat(entry)
            if stat.S_ISLNK(about.st_mode):
                return os.readlink("", dir_fd=entry)
            if not stat.S_ISREG(about.st_mode) or about.st_size > most:
                return None
            # By the descriptor, it is this very file. O_NONBLOCK avoids waiting for a lease.
            descriptor = os.open(f"/proc/self/fd/{entry}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:
            digest, bytes_left = hashlib.sha256(), most + 1
            while bytes_left and (chunk := file.read(min(bytes_left, _CHUNK))):
                digest.update(chunk)
                bytes_left -= len(chunk)
            return digest.hexdigest() if bytes_left else None
    except OSError:
        return None
