"""Contents of files and folders that calls name by their digests: each is stored once in the data directory.

A content is written under another name and renamed once it is complete and on the disk. A process that uses one which
no recorded call names yet has it open with a shared lock, which ends with the process at the latest: `sweep` deletes
contents that are neither locked nor named.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import IO

from tvsnap.host import trees
from tvsnap.host.home import make_private
from tvsnap.host.libc import closing
from tvsnap.host.locks import locked
from tvsnap.host.trees import Damaged, TreeItem
from tvsnap.model.errors import InfrastructureError

FOLDER = "contents"
_NAME = re.compile("[0-9a-f]{64}")
_NEW = ".new-"
_HELD = 64
"""Contents that a process used last and that are protected from deletion."""
_BEGUN = 60.0
"""Seconds after which a file that is still being written certainly has its lock."""


class Contents:
    """The contents of one data directory, as used by one process. Thread-safe."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER
        self._lock = threading.Lock()
        self._held: OrderedDict[str, int] = OrderedDict()  # open descriptors, by digest

    def add(self, items: Callable[[], Iterable[TreeItem]]) -> str:
        """Stores items; returns their digest.

        Args:
            items: returns them, each time from the beginning.

        Raises:
            UsageError: they cannot be read.
            InfrastructureError: they cannot be stored, for example for lack of room.
        """
        digest = trees.store(items())
        return digest if self.has(digest) else self.write(items())

    def write(self, items: Iterable[TreeItem]) -> str:
        """Stores items that can be read only once; see `add`."""
        new = self._folder / f"{_NEW}{secrets.token_hex(16)}"
        try:
            with self._failing_as_ours():
                self._folder.mkdir(mode=0o700, exist_ok=True)
                file = open(make_private(new), "wb")  # noqa: SIM115
            with file:
                with self._failing_as_ours():
                    fcntl.flock(file, fcntl.LOCK_SH)
                digest = trees.store(items, lambda data: self._write(file, data))
                with self._failing_as_ours():
                    file.flush()
                    os.fsync(file.fileno())
                    os.rename(new, self._folder / digest)
                    self._hold(digest, os.dup(file.fileno()))
            with self._failing_as_ours(), closing(os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)) as folder:
                os.fsync(folder)
            return digest
        finally:
            new.unlink(missing_ok=True)

    def has(self, digest: str) -> bool:
        """Returns whether a content exists; if so, it is kept until many others have been used."""
        while _NAME.fullmatch(digest):
            try:
                descriptor = os.open(self._folder / digest, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                return False
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if self._is_there(digest, descriptor):
                self._hold(digest, descriptor)
                return True
            os.close(descriptor)  # it was deleted meanwhile
        return False

    def read(self, digest: str) -> Iterator[TreeItem]:
        """Yields the items of a content.

        Raises:
            InfrastructureError: it does not exist, or is damaged and was deleted.
        """
        try:
            file: IO[bytes] = open(self._folder / digest, "rb")  # noqa: SIM115
        except OSError:
            raise InfrastructureError(f"the content {digest[:12]} is not in the data directory any more") from None
        with file:
            try:
                with self._failing_as_ours():
                    yield from trees.stored(file, digest)
            except Damaged:
                with contextlib.suppress(OSError):
                    os.unlink(self._folder / digest)
                raise

    def sweep(self, needed: Callable[[], Collection[str]], *, dry_run: bool = False) -> tuple[int, int]:
        """Deletes contents that no recorded call names and nobody uses, and unfinished files of killed processes.

        Args:
            needed: returns the digests that recorded calls name.
            dry_run: delete nothing.

        Returns:
            The number of deleted contents, and their bytes.
        """
        with contextlib.ExitStack() as ends:
            idle: dict[str, int] = {}
            for name in os.listdir(self._folder) if self._folder.is_dir() else ():
                if name.startswith(_NEW) or _NAME.fullmatch(name):
                    with contextlib.suppress(OSError):
                        file = ends.enter_context(open(self._folder / name, "rb"))
                        about = os.fstat(file.fileno())
                        if name.startswith(_NEW) and time.time() - about.st_mtime < _BEGUN:
                            continue
                        ends.enter_context(locked(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB))
                        idle[name] = about.st_size
            for name in needed() if idle else ():  # called under the locks: nobody can begin to use them
                idle.pop(name, None)
            for name in () if dry_run else idle:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._folder / name)
            return len(idle), sum(idle.values())

    def close(self) -> None:
        """Stops protecting contents."""
        with self._lock:
            while self._held:
                os.close(self._held.popitem()[1])

    def _write(self, file: IO[bytes], data: bytes) -> None:
        with self._failing_as_ours():
            file.write(data)

    @contextlib.contextmanager
    def _failing_as_ours(self) -> Iterator[None]:
        """A block whose OSErrors are faults of this machine; errors of reading items are the caller's."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise InfrastructureError(
                f"{self._folder}: a content cannot be kept or read ({reason}); make room"
            ) from None

    def _is_there(self, digest: str, descriptor: int) -> bool:
        try:
            present, opened = os.stat(self._folder / digest), os.fstat(descriptor)
        except OSError:
            return False
        return (present.st_dev, present.st_ino) == (opened.st_dev, opened.st_ino)

    def _hold(self, digest: str, descriptor: int) -> None:
        with self._lock:
            before = self._held.pop(digest, None)
            self._held[digest] = descriptor
            oldest = self._held.popitem(last=False)[1] if len(self._held) > _HELD else None
        for each in (before, oldest):
            if each is not None:
                os.close(each)
