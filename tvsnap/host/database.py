"""A SQLite file that several processes and threads use at once: many read it, one at a time writes.

In WAL mode readers never wait for a writer, and a process killed at any moment leaves whole transactions only. A
process that has the file open must not open it by other means than SQLite: closing such a descriptor would drop
SQLite's locks. The file is not mapped into memory: a read error, or a truncation by another process, would then end
this process instead of raising an error. Only its owner may read it; SQLite creates its other files with the same
rights.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvsnap.host.home import FORKED, keep_private, make_private
from tvsnap.host.libc import closing
from tvsnap.host.locks import locked
from tvsnap.model.errors import InfrastructureError, MachineLacks, TvsnapError

BUSY_SECONDS = 30.0
FAILURES = (sqlite3.Error, UnicodeError)
"""The errors of Python's SQLite; the latter for damaged text, even in the file's own schema."""
_BESIDE = ("-wal", "-shm", "-journal")
"""The suffixes of SQLite's files beside a database."""
_HEADER_BYTES = 100
"""Bytes of the header of every SQLite database (its file format, section 1.3)."""
_INDEX_HEADER = 96
"""Bytes with which the index of a write-ahead log begins, both copies of what each commit changes in it (SQLite's WAL
file format, section 2.1)."""
_LEAST = 1 << 20
"""Free bytes on the disk below which an I/O error of SQLite is attributed to lack of room."""
_DAMAGE = ("not a database", "malformed", "corrupt", "no such table", "no such column")


@dataclass(frozen=True, slots=True)
class Format:
    """The format of a file, and texts for its errors.

    Attributes:
        schema: the statements that make an empty one.
        application: the number that tells such a file from other programs'.
        version: that of the schema.
        kind: the kind of file, as in "tool-call graph".
        begin_anew: the state of work without a damaged file, as in "with an empty graph".
        elsewhere: the way to use another file, as in "give another path".
        room: the way to make room on a full disk.
        cache_kib: KiB of pages that the writer keeps in memory.
        migrations: the statements, separated by ";" and a line's end, that make a file of a version one of the next.
        functions: SQL functions that these need, by name.
        alterations: the events, as in a trigger after AFTER, after which something read before may hold no more; where
            there are none, every write counts as one.
    """

    schema: Path
    application: int
    version: int
    kind: str
    begin_anew: str
    elsewhere: str = "give another path"
    room: str = "make some, or give another path"
    cache_kib: int = 2 * 1024
    migrations: Mapping[int, str] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    alterations: Sequence[str] = ()


def is_undecodable(error: Exception) -> bool:
    """Returns whether the error means that a text is damaged."""
    return isinstance(error, UnicodeDecodeError) or "Could not decode" in str(error)


class Database:
    """One process's connections to a file. Thread-safe.

    Attributes:
        path: the file.
        readers: idle connections for reading. Take one with `reader()`, give it back with `readers.append()`;
            both are single steps of the interpreter, so the hot path needs no lock.
    """

    def __init__(self, path: Path, format: Format) -> None:
        """Opens the file, and creates it if it is missing.

        Args:
            path: the file; its folder is created if it is missing.
            format: its format.

        Raises:
            TvsnapError: in one line, if it cannot be written, is damaged, locked, or of another version or program.
        """
        self.path = path = path.expanduser().absolute()
        self.readers: list[sqlite3.Connection] = []
        self._format = format
        self._lock = threading.Lock()
        self._content_version = 0
        self._joined_by: int | None = None
        self._alterations: list[None] = []  # of the transaction that is being written
        self._closed = ""
        if path.resolve() in _abandoned:
            raise InfrastructureError(f"{path}: {FORKED}")
        self._check_rights()
        try:
            self._make_if_missing()
            self._check_application()
            keep_private(path, *(path.with_name(path.name + suffix) for suffix in _BESIDE))
            self._writer = self._connect(cache_kib=format.cache_kib)
            try:
                self._prepare()
                self._note_alterations()
                self._commits_of_others = _data_version(self._writer)
                self._index = _index_header(path)
                self._index_seen = b""
                self.readers.append(self._open_reader())
            except BaseException:
                self._writer.close()
                raise
        except FAILURES as error:
            raise self.explained(error) from error
        except OSError as error:
            raise MachineLacks(
                f"{path}: cannot be made ({error.strerror}); make room, or {format.elsewhere}"
            ) from error
        _open.add(self)

    @property
    def closed(self) -> bool:
        """Whether it can be used no more: it was closed, or opened before this process was forked off."""
        return bool(self._closed)

    @property
    def version(self) -> int | None:
        """A number that is another one once anybody has altered what was read before, in this process or another.

        What this process only adds alters nothing, see `Format.alterations`; all that others write may. None while this
        process is writing, when it is not known.

        Raises:
            TvsnapError: SQLite failed, or the file has been closed.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._closed:
                raise InfrastructureError(f"{self.path}: {self._closed}")
            index = None if self._index is None else self._index.raw  # before SQLite is asked
            if index is None or index != self._index_seen:
                commits = _data_version(self._writer)  # of others: its own do not change it
                if commits != self._commits_of_others:
                    self._commits_of_others = commits
                    self._content_version += 1
                self._index_seen = index or b""
            return self._content_version
        except FAILURES as error:
            raise self.explained(error) from error
        finally:
            self._lock.release()

    def reader(self) -> sqlite3.Connection:
        """Returns a connection for reading, for this thread alone until it is appended to `readers` again."""
        try:
            return self.readers.pop()
        except IndexError:
            if self._closed:
                raise InfrastructureError(f"{self.path}: {self._closed}") from None
            try:
                return self._open_reader()
            except FAILURES as error:
                raise self.explained(error) from error

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A block that reads one consistent version of the file.

        Raises:
            TvsnapError: SQLite failed, or the file has been closed.
        """
        if self._joined_by == threading.get_ident():
            try:
                yield self._writer
            except FAILURES as error:
                raise self.explained(error) from error
            return
        reader = self.reader()
        try:
            reader.execute("BEGIN")
            yield reader
        except FAILURES as error:
            raise self.explained(error) from error
        finally:
            self.give_back(reader)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Cursor]:
        """A block that is one transaction: it happens completely, or, if it raises, not at all.

        Raises:
            TvsnapError: SQLite failed, or the file has been closed.
        """
        if self._joined_by == threading.get_ident():
            with self._part() as cursor:
                yield cursor
            return
        with self._lock:
            if self._closed:
                raise InfrastructureError(f"{self.path}: {self._closed}")
            cursor = self._writer.cursor()
            try:
                cursor.execute("BEGIN IMMEDIATE")
                self._alterations.clear()
                yield cursor
                cursor.execute("COMMIT")
            except FAILURES as error:
                raise self.explained(error) from error
            finally:
                if self._alterations or not self._format.alterations:
                    self._content_version += 1
                if self._writer.in_transaction:
                    self._writer.rollback()
                cursor.close()

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block that is one transaction, with all those that its thread begins in it.

        Each of those may fail by itself. The thread reads there what it has written.

        Raises:
            TvsnapError: SQLite failed, or the file has been closed; then nothing of it is written.
        """
        with self.write():
            self._joined_by = threading.get_ident()
            try:
                yield
            finally:
                self._joined_by = None

    @property
    def is_joined(self) -> bool:
        """Whether this thread is in a block of `together`."""
        return self._joined_by == threading.get_ident()

    @contextmanager
    def _part(self) -> Iterator[sqlite3.Cursor]:
        """A block that is a part of the transaction: it happens completely, or, if it raises, not at all."""
        cursor = self._writer.cursor()
        try:
            if not self._writer.in_transaction:  # SQLite has ended it: the disk is full, for example
                raise InfrastructureError(f"{self.path}: what was to be written with this failed, and so this did")
            cursor.execute("SAVEPOINT part")
            try:
                yield cursor
            except BaseException:
                if self._writer.in_transaction:
                    cursor.execute("ROLLBACK TO part")
                    cursor.execute("RELEASE part")
                raise
            cursor.execute("RELEASE part")
        except FAILURES as error:
            raise self.explained(error) from error
        finally:
            cursor.close()

    def give_back(self, reader: sqlite3.Connection) -> None:
        """Takes back a connection that `reader()` returned, and ends its transaction if there is one."""
        if reader.in_transaction:
            reader.rollback()
        if self._closed:
            reader.close()
        else:
            self.readers.append(reader)

    def _note_alterations(self) -> None:
        """Has the writer's connection note what alters something."""
        noted = self._alterations
        self._writer.create_function("note_alteration", 0, lambda: noted.append(None))
        for number, event in enumerate(self._format.alterations):
            self._writer.execute(
                f"CREATE TEMP TRIGGER alteration_{number} AFTER {event} BEGIN SELECT note_alteration(); END"
            )

    def close(self) -> None:
        """Closes the file; safe to repeat. A reader in use is closed when it is given back."""
        with self._lock:
            if self._closed:
                return
            self._closed = "it has been closed; open it again"
            while self.readers:
                self.readers.pop().close()
            self._writer.close()
        _open.discard(self)

    def abandon(self) -> None:
        """Stops using the parent's connections, in the child of a fork; see `_abandon_all`."""
        self._closed = FORKED
        self._lock = threading.Lock()
        _abandoned[self.path.resolve()] = [self._writer, *self.readers]
        self.readers = []

    def explained(self, error: Exception) -> TvsnapError:
        """Converts an error of SQLite into one that names the file, the reason and a remedy."""
        reason = str(error)
        if "locked" in reason or "busy" in reason:
            return InfrastructureError(
                f"{self.path}: another process has kept it locked for {BUSY_SECONDS:g} s; end that process and try "
                "again"
            )
        if is_undecodable(error) or any(word in reason for word in _DAMAGE):
            return self._damaged(reason)
        if "readonly" in reason or "unable to open" in reason:
            return MachineLacks(
                f"{self.path}: cannot be written ({reason}); mend its rights or {self._format.elsewhere}"
            )
        if "full" in reason or ("disk I/O" in reason and self._is_full()):
            return InfrastructureError(f"{self.path}: no room left on its disk; {self._format.room}")
        return InfrastructureError(f"{self.path}: {reason}")

    def _damaged(self, reason: str) -> InfrastructureError:
        return InfrastructureError(
            f"{self.path}: damaged ({reason}); move it away to start {self._format.begin_anew}, or put a copy of it "
            "back"
        )

    def _is_full(self) -> bool:
        try:
            return shutil.disk_usage(self.path.parent).free < _LEAST
        except OSError:
            return False

    def _check_rights(self) -> None:
        directory, elsewhere = self.path.parent, self._format.elsewhere
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise MachineLacks(
                f"{directory}: cannot be made ({error.strerror}); mend the rights or {elsewhere}"
            ) from error
        for path in (directory, self.path):
            if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
                raise MachineLacks(f"{path}: cannot be written; mend its rights or {elsewhere}")

    def _make_if_missing(self) -> None:
        """Creates an empty file, completely or not at all: an existing one that is empty has lost its contents."""
        path = self.path
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        with closing(os.open(path.parent, flags)) as directory, locked(directory):
            if path.exists():
                if path.stat().st_size == 0:
                    raise self._damaged("it is empty")
                return
            unfinished = path.with_name(f"{path.name}.new")
            # SQLite would take remains of an earlier file of this name for changes to this one.
            for rest in (unfinished, *(path.with_name(path.name + suffix) for suffix in _BESIDE)):
                rest.unlink(missing_ok=True)
            os.close(make_private(unfinished))
            with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = OFF")  # an unfinished file is never used
                schema, own, version = self._format.schema.read_text(), self._format.application, self._format.version
                # In one transaction, as the disk is waited for at the end of each.
                connection.executescript(
                    f"BEGIN; {schema}; PRAGMA application_id = {own}; PRAGMA user_version = {version}; COMMIT;"
                )
            unfinished.rename(path)

    def _check_application(self) -> None:
        """Raises an error for another program's file before anything of it is changed: its rights, its mode.

        It is opened as if it never changed, so that SQLite makes no file beside it either. A change by another process
        may then look like damage, so a file that seems damaged is opened again in the usual way.
        """
        if not self.path.is_file():
            return
        if self.path.stat().st_size < _HEADER_BYTES:  # which SQLite takes for an empty database
            raise self._damaged("it is cut within its header")
        address = f"{self.path.as_uri()}?mode=ro&immutable=1"
        try:
            with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
                self._check_is_ours(connection)
        except sqlite3.DatabaseError as error:
            if "not a database" in str(error):
                raise self._damaged(str(error)) from error

    def _check_is_ours(self, connection: sqlite3.Connection) -> None:
        application: int = connection.execute("PRAGMA application_id").fetchone()[0]
        if application != self._format.application:
            raise TvsnapError(f"{self.path}: not a {self._format.kind} but another program's file; move it away")

    def _connect(self, *, cache_kib: int) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        settings = ("synchronous = NORMAL", "mmap_size = 0", "cell_size_check = ON", f"cache_size = -{cache_kib}")
        for setting in (*settings, "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {setting}")
        return connection

    def _open_reader(self) -> sqlite3.Connection:
        reader = self._connect(cache_kib=2 * 1024)
        reader.execute("PRAGMA query_only = ON")
        return reader

    def _prepare(self) -> None:
        self._enter_wal_mode()
        self._writer.execute("PRAGMA wal_autocheckpoint = 4000")
        wanted = self._format.version
        if self._version() == wanted:
            return
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            if self._version() != wanted:  # another process may have done it meanwhile
                for name, function in self._format.functions.items():
                    self._writer.create_function(name, -1, function, deterministic=True)
                for version in range(self._version(), wanted):
                    for statement in self._format.migrations[version].strip().split(";\n"):
                        self._writer.execute(statement)
                self._writer.execute(f"PRAGMA user_version = {wanted}")
            self._writer.execute("COMMIT")
        finally:
            if self._writer.in_transaction:
                self._writer.rollback()

    def _enter_wal_mode(self) -> None:
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._writer.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                # If two processes switch the mode at once, SQLite fails without waiting.
                if time.monotonic() > deadline or "locked" not in str(error):
                    raise
            time.sleep(0.01)

    def _version(self) -> int:
        """Returns the file's version."""
        format = self._format
        version: int = self._writer.execute("PRAGMA user_version").fetchone()[0]
        self._check_is_ours(self._writer)
        if version > format.version or (version < format.version and version not in format.migrations):
            raise TvsnapError(
                f"{self.path}: made by {'a newer' if version > format.version else 'an older'} tvsnap (format "
                f"{version}, this one knows {format.version}); use that one, or {format.elsewhere}"
            )
        return version


def _data_version(connection: sqlite3.Connection) -> int:
    """Returns a number of SQLite's that changes with what other connections commit."""
    ((version,),) = connection.execute("PRAGMA data_version").fetchall()
    return int(version)


def _index_header(path: Path) -> ctypes.Array[ctypes.c_char] | None:
    """Returns the memory in which SQLite has the header of the index of a file's write-ahead log; None if not found.

    It stays there while a connection of this process is open. Any commit of any process changes it, so that as long as
    it is the same, nothing need be asked of SQLite, which takes and gives back a lock of the kernel to answer.
    """
    name = f"{path.resolve()}-shm"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            addresses, *about = line.split(maxsplit=5)
            if about[0] == "rw-s" and about[1] == "00000000" and about[4:] == [name]:
                return (ctypes.c_char * _INDEX_HEADER).from_address(int(addresses.partition("-")[0], 16))
    return None


_open: weakref.WeakSet[Database] = weakref.WeakSet()
_abandoned: dict[Path, list[sqlite3.Connection]] = {}


def _abandon_all() -> None:
    """Gives up, in the child of a fork, every file that the parent had open.

    SQLite assumes in the child that it has locks that only the parent has, even for a new connection. Neither using nor
    closing the parent's connections is safe, so they are kept for as long as the child lives.
    """
    for database in list(_open):
        database.abandon()


os.register_at_fork(after_in_child=_abandon_all)
