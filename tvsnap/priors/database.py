"""A SQLite file that several processes and threads use at once: one at a time writes, all can read.

In WAL mode a process that is killed at any moment leaves whole transactions only. Only the file's owner may read it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tvsnap import InfrastructureError, MachineLacks, TvsnapError
from tvsnap.host.home import FORKED, keep_private, make_private

BUSY_SECONDS = 30.0
FAILURES = (sqlite3.Error, UnicodeError)
"""What Python's SQLite raises; the latter where text was damaged."""
_BESIDE = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Format:
    """What a file holds.

    Attributes:
        schema: the statements that make an empty one.
        application: the number that tells such a file from other programs'.
        version: of the schema.
        contents: what is lost with the file, as in "the answers that were cached".
    """

    schema: Path
    application: int
    version: int
    contents: str


class Database:
    """One process's connections to a file. Thread-safe.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, format: Format) -> None:
        """Opens the file, and creates it if it is missing.

        Args:
            path: the file; its folder is created if it is missing.
            format: what it holds.

        Raises:
            TvsnapError: it cannot be written, is damaged, locked, or of another version or program.
        """
        self.path = path.expanduser().absolute()
        self._format = format
        self._lock = threading.Lock()
        self._closed = ""
        self._readers: list[sqlite3.Connection] = []
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_if_missing()
            keep_private(self.path, *(self.path.with_name(self.path.name + suffix) for suffix in _BESIDE))
            self._writer = self._connect()
            try:
                self._check_version()
                self._enter_wal_mode()
            except BaseException:
                self._writer.close()
                raise
        except FAILURES as error:
            raise self._explained(error) from error
        except OSError as error:
            raise MachineLacks(
                f"{self.path}: cannot be made ({error.strerror}); make room, or give another path"
            ) from error
        _open.add(self)

    @property
    def closed(self) -> bool:
        """Whether it can be used no more: it was closed, or opened before this process was forked off."""
        return bool(self._closed)

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A block that reads one consistent version of the file.

        Raises:
            TvsnapError: SQLite failed, or the file has been closed.
        """
        if self._closed:
            raise InfrastructureError(f"{self.path}: {self._closed}")
        connection = None
        try:
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = self._connect()
                connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")
            yield connection
        except FAILURES as error:
            raise self._explained(error) from error
        finally:
            if connection is not None:
                self._give_back(connection)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A block that is one transaction: it happens completely, or, if it raises, not at all.

        Raises:
            TvsnapError: SQLite failed, or the file has been closed.
        """
        with self._lock:
            if self._closed:
                raise InfrastructureError(f"{self.path}: {self._closed}")
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("COMMIT")
            except FAILURES as error:
                raise self._explained(error) from error
            finally:
                if self._writer.in_transaction:
                    self._writer.rollback()

    def close(self) -> None:
        """Closes the file; safe to repeat."""
        with self._lock:
            if self._closed:
                return
            self._closed = "it has been closed; open it again"
            while self._readers:
                self._readers.pop().close()
            self._writer.close()
        _open.discard(self)

    def abandon(self) -> None:
        """Stops using the parent's connections, in the child of a fork: even closing them is not safe there."""
        self._closed = FORKED
        self._lock = threading.Lock()
        _abandoned.append([self._writer, *self._readers])
        self._readers = []

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.rollback()
        self._readers.append(connection)
        if self._closed and self._closed != FORKED:  # closed meanwhile
            with contextlib.suppress(IndexError):
                self._readers.pop().close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        for setting in ("synchronous = NORMAL", "mmap_size = 0", "cell_size_check = ON", "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {setting}")
        return connection

    def _enter_wal_mode(self) -> None:
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._writer.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                # Where two processes switch the mode at once, SQLite fails without waiting.
                if time.monotonic() > deadline or "locked" not in str(error):
                    raise
            time.sleep(0.01)

    def _check_version(self) -> None:
        application = self._writer.execute("PRAGMA application_id").fetchone()[0]
        version = self._writer.execute("PRAGMA user_version").fetchone()[0]
        if application != self._format.application:
            raise TvsnapError(f"{self.path}: another program's file, or of another kind; give another path")
        if version != self._format.version:
            raise TvsnapError(
                f"{self.path}: of format {version}, and this tvsnap knows {self._format.version}; move it away "
                f"({self._format.contents} are asked for anew), or use the tvsnap that made it"
            )

    def _make_if_missing(self) -> None:
        """Creates an empty file, completely or not at all: an existing one that is empty has lost its contents."""
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            if self.path.exists():
                if self.path.stat().st_size == 0:
                    raise self._damaged("it is empty")
                return
            unfinished = self.path.with_name(f"{self.path.name}.new")
            for rest in (unfinished, *(self.path.with_name(self.path.name + suffix) for suffix in _BESIDE)):
                rest.unlink(missing_ok=True)
            os.close(make_private(unfinished))
            with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = OFF")  # an unfinished file is never used
                connection.executescript(self._format.schema.read_text())
                connection.execute(f"PRAGMA application_id = {self._format.application}")
                connection.execute(f"PRAGMA user_version = {self._format.version}")
            unfinished.rename(self.path)
        finally:
            os.close(directory)

    def _explained(self, error: Exception) -> TvsnapError:
        reason = str(error)
        if "locked" in reason or "busy" in reason:
            return InfrastructureError(
                f"{self.path}: another process has kept it locked for {BUSY_SECONDS:g} s; end it and try again"
            )
        if isinstance(error, UnicodeError) or any(
            word in reason
            for word in ("not a database", "malformed", "corrupt", "decode", "no such table", "no such column")
        ):
            return self._damaged(reason)
        if "readonly" in reason or "unable to open" in reason:
            return MachineLacks(f"{self.path}: cannot be written ({reason}); mend its rights, or give another path")
        if "full" in reason:
            return InfrastructureError(f"{self.path}: no room left on its disk; make some, or give another path")
        return InfrastructureError(f"{self.path}: {reason}")

    def _damaged(self, reason: str) -> InfrastructureError:
        return InfrastructureError(
            f"{self.path}: damaged ({reason}); move it away to start anew ({self._format.contents} are lost), or put a "
            "copy of it back"
        )


_open: weakref.WeakSet[Database] = weakref.WeakSet()
_abandoned: list[list[sqlite3.Connection]] = []


def _abandon_all() -> None:
    for database in list(_open):
        database.abandon()


os.register_at_fork(after_in_child=_abandon_all)
