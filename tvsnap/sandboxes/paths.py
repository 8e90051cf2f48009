"""Opening what a sandbox's processes may have put somewhere: whatever its links say, and whatever it is renamed to.

Everything of this machine that looks at a sandbox's files from outside does so through here: the kernel resolves the
path within a directory (`openat2`), so that a directory which becomes a link to `/etc` between two looks leads nowhere.
What is opened is first looked at without being opened, so that a FIFO or a device in a file's place does nothing.
All calls go through ctypes, which lets other threads run meanwhile.
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

_libc = ctypes.CDLL(None, use_errno=True)
_OPENAT2 = 437
_NO_MAGICLINKS, _NO_SYMLINKS, _IN_ROOT = 0x02, 0x04, 0x10
_TRIES = 100
_CHUNK = 1 << 20


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """A block at whose end a descriptor is closed."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def directory(path: str | Path) -> AbstractContextManager[int]:
    """A block with a descriptor (O_PATH) of a directory of this machine, below which paths are opened."""
    return closing(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))


def open_in_root(root: int, path: str) -> int:
    """Opens `path` (O_PATH) as a process would whose root directory is `root`: no link leads out of it.

    Returns a descriptor, close-on-exec; raises OSError as open does.
    """
    return _openat2(root, path, os.O_PATH, _IN_ROOT | _NO_MAGICLINKS)


def open_beneath(root: int, path: str, flags: int = os.O_PATH) -> int:
    """Opens `path` below a directory without following any symbolic link in it; with O_PATH it may be one itself.

    Returns a descriptor, close-on-exec; raises OSError as open does, ELOOP where a link is in the way.
    """
    return _openat2(root, path, flags | os.O_NOFOLLOW, _IN_ROOT | _NO_SYMLINKS)


def _openat2(root: int, path: str, flags: int, resolve: int) -> int:
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, resolve)
    for _ in range(_TRIES):
        descriptor: int = _libc.syscall(_OPENAT2, root, os.fsencode(path), how, len(how))
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):  # renames on the way: the kernel would not vouch for it
            break
    raise OSError(number, os.strerror(number), path)


def topmost(layers: Iterable[Path], path: str) -> tuple[Path, os.stat_result] | None:
    """Returns what a path is in the topmost layer of an overlay that says anything of it.

    Args:
        layers: their directories, topmost first; nothing changes them any more.
        path: below them.

    Returns:
        Where it is on this machine, free of links but for itself, and its lstat; None if it is nothing.
    """
    for layer in layers:
        try:
            with directory(layer) as root, closing(open_beneath(root, path or "/")) as found:
                about = os.fstat(found)
        except FileNotFoundError:
            continue
        except OSError:  # in its way is something that is no directory, and hides what lies below
            return None
        return None if stat.S_ISCHR(about.st_mode) and about.st_rdev == 0 else (Path(f"{layer}{path}"), about)
    return None


def scan(root: int, path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yields all that lies below a directory, in no order, without following any link; what goes meanwhile is left out.

    `path`, of the directory to begin with, lies below `root`; so do the paths that are yielded, each with its lstat.
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
    """Returns a link's target or a file's digest; None where it is neither, larger than `most` bytes, or gone."""
    try:
        with closing(open_beneath(root, path)) as found:
            about = os.fstat(found)
            if stat.S_ISLNK(about.st_mode):
                return os.readlink("", dir_fd=found)
            if not stat.S_ISREG(about.st_mode) or about.st_size > most:
                return None
            # By its descriptor: it is that very file, whatever has taken its place. A lease on it is not waited for.
            descriptor = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:
            digest, left = hashlib.sha256(), most + 1
            while left and (chunk := file.read(min(left, _CHUNK))):
                digest.update(chunk)
                left -= len(chunk)
            return digest.hexdigest() if left else None
    except OSError:
        return None
