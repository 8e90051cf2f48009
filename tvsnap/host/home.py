"""The data directory."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tvsnap.model.arguments import check_text
from tvsnap.model.errors import InfrastructureError, MachineLacks, NotFound, UsageError

SYSTEM_HOME = Path("/var/lib/tvsnap")
GRAPH_FILE = "tvsnap.db"
LONGEST = 400  # bytes of the path; SQLite takes 512 for a file's, and mounts take 4096 for several

FORKED = "was opened before this process was forked off; open it in the child alone, or start it with spawn"
"""The error for objects that were open at a fork, and that the child must not use."""

_WAY_OUT = "choose another with --home or $TVSNAP_HOME"
_NO_PLACE = (errno.ENOENT, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
"""Errors of making a directory in a place without directories, such as /proc. EACCES is a lack of rights instead."""


def check_there(home: Path) -> None:
    """Raises NotFound if a path is no data directory: it has neither a graph nor images.

    For operations that only read, and must not create an empty data directory for a mistyped path.

    Args:
        home: the path.
    """
    try:
        there = (home / GRAPH_FILE).exists() or (home / "images").exists()
        there = there or (os.path.lexists(home) and not home.is_dir())
    except OSError:
        there = True
    # `resolve_home` raises the error for a path that cannot be a data directory.
    if not there:
        raise NotFound(
            f"there is no data directory at {home}: choose another with --home or $TVSNAP_HOME, or begin one "
            "(tvsnap demo, tvsnap image build terminal)"
        )


def find_home(home: Path | str | None = None) -> Path:
    """Returns the absolute path of the data directory, whether it exists or not; see `resolve_home`."""
    if home is not None and (not isinstance(home, (str, Path)) or home == ""):
        raise UsageError(f"home must be a path, not {home!r}")
    check_text(str(home), "home")
    path = Path(home or os.environ.get("TVSNAP_HOME") or _default_home()).expanduser().absolute()
    if len(os.fsencode(path)) > LONGEST:
        raise UsageError(f"the data directory {str(path)[:60]}... is too long: at most {LONGEST} bytes; {_WAY_OUT}")
    return path


def resolve_home(home: Path | str | None = None) -> Path:
    """Returns the absolute path of the data directory, and creates it (for its owner only) if it is missing.

    Args:
        home: the directory to use; without one `$TVSNAP_HOME`, else /var/lib/tvsnap for root, else `tvsnap` in the
            user's XDG data directory.

    Raises:
        UsageError: it is no path; or the path is no directory, or too long, or lies where no directories can be made.
        MachineLacks: no rights to create it or to write there, or no room for it.
    """
    path = find_home(home)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"the data directory {path} is no directory; {_WAY_OUT}") from None
    except OSError as error:
        kind = UsageError if error.errno in _NO_PLACE else MachineLacks
        raise kind(f"cannot make the data directory {path}: {error.strerror}; {_WAY_OUT}") from None
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise MachineLacks(f"the data directory {path} is on a read-only file system; remount it, or {_WAY_OUT}")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise MachineLacks(f"no rights to read and write the data directory {path}; {_WAY_OUT}")
    return path


class HomeInUse:
    """A data directory that is open; checks that it was not moved, and that the process is the one that opened it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened, self._process = _identity(path), os.getpid()

    @property
    def forked_off(self) -> bool:
        """Whether this process was forked off by the one that opened the directory; it lacks that one's threads."""
        return os.getpid() != self._process

    def check(self, cause: OSError | None = None) -> None:
        """Raises InfrastructureError (from `cause`) if this process did not open the directory, or if it was moved."""
        if self.forked_off:
            raise InfrastructureError(f"{self._path} {FORKED}")
        if _identity(self._path) != self._opened:
            raise InfrastructureError(
                f"the data directory {self._path} was moved or deleted while it was in use; move it back, or close "
                f"this and open it where it is now"
            ) from cause

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """A block whose errors are explained by the removal of the data directory, if that was the cause."""
        try:
            yield
        except OSError as error:
            self.check(error)
            raise


def make_private(path: Path) -> int:
    """Creates an empty file that only its owner may read and write, for any umask; returns a descriptor of it.

    Raises:
        OSError: it cannot be created, or exists.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)  # a umask may have removed rights of the owner
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def keep_private(*paths: Path) -> None:
    """Removes the rights of others to files of earlier versions.

    Files that are missing, or that belong to another user, are skipped. None is opened: closing it would drop SQLite's
    locks on it.
    """
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.stat()
            if status.st_uid == os.geteuid() and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                path.chmod(status.st_mode & stat.S_IRWXU)


def _default_home() -> Path:
    if os.geteuid() == 0:
        return SYSTEM_HOME
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share") / "tvsnap"


def _identity(directory: Path) -> tuple[int, int] | None:
    """Identifies a directory, independently of its path; None if there is none."""
    try:
        status = directory.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
