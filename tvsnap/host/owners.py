"""The processes that use a data directory, dead ones included.

Each process holds a lock (flock) on a file of its own for as long as it lives. The kernel releases it at any end of the
process, so that no other record is needed: a process is alive if its lock cannot be taken. Child processes do not
inherit the lock (the descriptor is closed on exec and after a fork made by Python); a bare fork(2) would keep it
locked.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import weakref
from collections.abc import Callable
from pathlib import Path

from tvsnap.model.errors import MachineLacks

UNFINISHED = ".new"
_ID = re.compile(r"[A-Za-z0-9-]+")


class Owner:
    """This process's claim on a data directory; alive until `close`, or until the process ends in any way.

    Attributes:
        id: unique in the data directory; letters, digits and dashes, so that it fits into names of files and cgroups.
    """

    def __init__(self, home: Path) -> None:
        """Registers a new owner in a data directory, which is created if it is missing.

        Raises:
            MachineLacks: it cannot be written.
        """
        directory = _directory(home)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sweep_unfinished(directory)
            while not self._claim(home):
                pass
        except OSError as error:
            raise MachineLacks(
                f"{directory}: cannot be written ({error.strerror}); mend its rights or set TVSNAP_HOME elsewhere"
            ) from error
        _owners.add(self)

    def _claim(self, home: Path) -> bool:
        """Creates a locked file; it is renamed only once it is locked, so that this owner never seems dead."""
        self.id = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._path = _path(home, self.id)
        unfinished = self._path.with_suffix(UNFINISHED)
        self._descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            unfinished.rename(self._path)
        except FileNotFoundError:  # a process deleted it, taking it for a dead one's
            self._forget()
            return False
        return True

    def close(self) -> None:
        """Ends the claim; safe to repeat. First clean up everything that carries the owner's name."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            self._forget()

    def _forget(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1


def is_alive(home: Path, id: str) -> bool:
    # A shared lock, so that two processes that check at once do not take each other for the owner.
    return _lock(_path(home, id), fcntl.LOCK_SH) is False


def has_live_owner(home: Path, name: str) -> bool:
    """Returns whether the owner of a sandbox or a snapshot is alive: their names are `OWNER.REST`."""
    id = name.partition(".")[0]
    return bool(_ID.fullmatch(id)) and is_alive(home, id)


def dead_owners(home: Path) -> list[str]:
    """Returns the ids of the owners that have died and have not been removed yet, sorted."""
    return [id for id in _registered(home) if not is_alive(home, id)]


def live_owners(home: Path) -> list[str]:
    """Returns the ids of the live processes that use a data directory, sorted."""
    return [id for id in _registered(home) if is_alive(home, id)]


def _registered(home: Path) -> list[str]:
    return sorted(path.stem for path in _directory(home).glob("*.lock"))


def remove(home: Path, id: str) -> bool:
    """Removes a dead owner, after its remains; returns whether it is gone, and was not alive."""
    return _unlink_unlocked(_path(home, id))


def sweep(directory: Path, is_left: Callable[[str], bool], remove: Callable[[Path], object]) -> int:
    """Removes the remains of unfinished work from a directory; returns their number.

    `is_left` returns whether an entry with a name is one of them.
    """
    remains = [Path(entry.path) for entry in os.scandir(directory) if is_left(entry.name)]
    for path in remains:
        remove(path)
    return len(remains)


def _directory(home: Path) -> Path:
    return home / "run" / "owners"


def _path(home: Path, id: str) -> Path:
    if not _ID.fullmatch(id):
        raise ValueError(f"{id!r} is no owner's id")
    return _directory(home) / f"{id}.lock"


def _sweep_unfinished(directory: Path) -> None:
    """Removes the files of processes that were killed while they created theirs."""
    for path in directory.glob(f"*{UNFINISHED}"):
        _unlink_unlocked(path)


def _unlink_unlocked(path: Path) -> bool:
    """Removes a file unless someone holds a lock on it; returns whether it is gone."""
    return _lock(path, fcntl.LOCK_EX, lambda: path.unlink(missing_ok=True)) is not False


def _lock(path: Path, how: int, act: Callable[[], None] = lambda: None) -> bool | None:
    """Calls `act` while a file is locked; returns whether the lock could be taken, None if there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        act()
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()


def _forget_all() -> None:
    for owner in list(_owners):
        if owner._descriptor >= 0:
            owner._forget()


os.register_at_fork(after_in_child=_forget_all)
