"""The SQLite file of the graph: many threads can read it, one at a time writes.

Several processes may have it open. In WAL mode readers never wait for a writer, and a process killed at any moment
leaves whole transactions only. A process that has it open must not open it by other means than SQLite: closing such a
descriptor would drop SQLite's locks. The file is not mapped into memory: a read error, or a truncation by another
process, would then end this process instead of raising an error. Only its owner may read it; SQLite creates its other
files with the same rights.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tvsnap.graph.rows import checksum
from tvsnap.host.home import FORKED, keep_private, make_private
from tvsnap.model.errors import InfrastructureError, MachineLacks, TvsnapError

VERSION = 7
APPLICATION_ID = 0x74767370  # "tvsp": distinguishes a graph from any other SQLite file
BUSY_SECONDS = 30.0
SCHEMA = Path(__file__).with_name("schema.sql")
_BESIDE = ("-wal", "-shm", "-journal")
"""The suffixes of the files that SQLite keeps beside a database."""

FAILURES = (sqlite3.Error, UnicodeError)
"""What Python's SQLite raises; the latter where text was damaged, even in the file's own schema."""
_LEAST = 1 << 20
"""If fewer bytes are free on the disk, an I/O error of SQLite is attributed to lack of room."""


def explain(path: Path, error: Exception) -> TvsnapError:
    """Converts an error of SQLite into one that names the file, the reason and a remedy."""
    reason = str(error)
    if "locked" in reason or "busy" in reason:
        return InfrastructureError(
            f"{path}: another process has kept it locked for {BUSY_SECONDS:g} s; end that process and try again"
        )
    if "not a database" in reason or "malformed" in reason or "corrupt" in reason or is_undecodable(error):
        return damaged(path, reason)
    if "readonly" in reason or "unable to open" in reason:
        return MachineLacks(f"{path}: cannot be written ({reason}); mend its rights or set TVSNAP_HOME elsewhere")
    if "full" in reason or ("disk I/O" in reason and _is_full(path)):
        return InfrastructureError(
            f"{path}: no room left on its disk; free some: tvsnap gc --packages --keep-bytes 0, or tvsnap forget (they "
            "need a few MiB themselves, which tvsnap keeps in reserve: where that does not do, remove something else)"
        )
    return InfrastructureError(f"{path}: {reason}")


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _LEAST
    except OSError:
        return False


def damaged(path: Path, reason: str) -> InfrastructureError:
    """Returns the error for a file whose contents are not what was written."""
    return InfrastructureError(
        f"{path}: damaged ({reason}); move it away to start with an empty graph (what it held is executed anew), or "
        "put a copy of it back"
    )


def is_undecodable(error: Exception) -> bool:
    """Returns whether the error means that a text is damaged."""
    return isinstance(error, UnicodeDecodeError) or "Could not decode" in str(error)


class Database:
    """One process's connections to a graph's file. Thread-safe.

    Attributes:
        path: the file.
        readers: idle connections for reading. Take one with `reader()`, give it back with `readers.append()`;
            both are single steps of the interpreter, so the hot path needs no lock.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file, and creates it if it is missing.

        Raises:
            TvsnapError: in one line, if it cannot be written, is damaged, locked, or of another version.
        """
        self.path = path
        self.readers: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = ""
        if path.resolve() in _abandoned:
            raise InfrastructureError(f"{path}: {FORKED}")
        self._check_rights()
        try:
            _make_if_missing(path)
            keep_private(path, *(path.with_name(path.name + suffix) for suffix in _BESIDE))
            self._writer = self._connect(cache_kib=32 * 1024)
            try:
                self._prepare()
                self.readers.append(self._open_reader())
            except BaseException:
                self._writer.close()
                raise
        except FAILURES as error:
            raise explain(path, error) from error
        except OSError as error:
            raise MachineLacks(
                f"{path}: cannot be made ({error.strerror}); make room, or set TVSNAP_HOME elsewhere"
            ) from error
        _open_databases.add(self)

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
                raise explain(self.path, error) from error

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A block that reads one consistent version of the graph.

        Raises:
            TvsnapError: SQLite failed.
        """
        reader = self.reader()
        try:
            reader.execute("BEGIN")
            yield reader
        except FAILURES as error:
            raise explain(self.path, error) from error
        finally:
            self.give_back(reader)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Cursor]:
        """A block that is one transaction: it happens completely, or, if it raises, not at all.

        Raises:
            TvsnapError: SQLite failed.
        """
        with self._lock:
            if self._closed:
                raise InfrastructureError(f"{self.path}: {self._closed}")
            cursor = self._writer.cursor()
            try:
                cursor.execute("BEGIN IMMEDIATE")
                yield cursor
                cursor.execute("COMMIT")
            except FAILURES as error:
                raise explain(self.path, error) from error
            finally:
                if self._writer.in_transaction:
                    self._writer.rollback()
                cursor.close()

    def give_back(self, reader: sqlite3.Connection) -> None:
        """Takes back a connection that `reader()` returned, and ends its transaction if there is one."""
        if reader.in_transaction:
            reader.rollback()
        if self._closed:
            reader.close()
        else:
            self.readers.append(reader)

    def close(self) -> None:
        """Closes the file; safe to repeat. A reader in use is closed when it is given back."""
        with self._lock:
            if self._closed:
                return
            self._closed = "the graph has been closed"
            while self.readers:
                self.readers.pop().close()
            self._writer.close()
        _open_databases.discard(self)

    def abandon(self) -> None:
        """Stops using the parent's connections, in the child of a fork; see `_abandon_all`."""
        self._closed = FORKED
        self._lock = threading.Lock()
        _abandoned[self.path.resolve()] = [self._writer, *self.readers]
        self.readers = []

    def _check_rights(self) -> None:
        directory = self.path.parent
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MachineLacks(
                f"{directory}: cannot be made ({error.strerror}); mend the rights or set TVSNAP_HOME elsewhere"
            ) from error
        for path in (directory, self.path):
            if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
                raise MachineLacks(f"{path}: cannot be written; mend its rights or set TVSNAP_HOME elsewhere")

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
        if self._version() == VERSION:
            return
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            if self._version() != VERSION:  # another process may have done it meanwhile
                self._writer.create_function("edge_checksum", -1, checksum, deterministic=True)
                for version in range(self._version(), VERSION):
                    for statement in _MIGRATIONS[version].strip().split(";\n"):
                        self._writer.execute(statement)
                self._writer.execute(f"PRAGMA user_version = {VERSION}")
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
                # Where two processes switch the mode at once, SQLite fails without waiting.
                if time.monotonic() > deadline or "locked" not in str(error):
                    raise
            time.sleep(0.01)

    def _version(self) -> int:
        """Returns the file's version."""
        version: int = self._writer.execute("PRAGMA user_version").fetchone()[0]
        application: int = self._writer.execute("PRAGMA application_id").fetchone()[0]
        if application != APPLICATION_ID:
            raise TvsnapError(f"{self.path}: not a tool-call graph but another program's file; move it away")
        if version > VERSION:
            raise TvsnapError(
                f"{self.path}: made by a newer tvsnap (format {version}, this one knows {VERSION}); "
                "upgrade tvsnap or set TVSNAP_HOME elsewhere"
            )
        return version


_MIGRATIONS = {
    # Version 1 had no checksums.
    1: """
ALTER TABLE edges ADD COLUMN checksum INTEGER;
UPDATE edges SET checksum = edge_checksum(state, call_key, slot, 0.0, next_state, timeout, exit_code, duration,
    timed_out, blocked, truncated, NULL, output, call, NULL) WHERE deterministic AND slot IS NOT NULL;
""",
    # In a file of version 2, nothing was proven, and time did not count. States with a snapshot go on answering; calls
    # to others are executed once more. Private states had snapshots only if someone asked for them.
    2: """
ALTER TABLE edges ADD COLUMN proven INTEGER NOT NULL DEFAULT 0;
ALTER TABLE edges ADD COLUMN waited REAL NOT NULL DEFAULT 0;
ALTER TABLE edges ADD COLUMN quiet_s REAL;
ALTER TABLE snapshots ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE snapshots ADD COLUMN age_s REAL NOT NULL DEFAULT 0;
UPDATE snapshots SET pinned = state IN (SELECT hash FROM states WHERE private <> '');
DROP INDEX edges_by_call;
CREATE UNIQUE INDEX edges_by_call ON edges (state, call_key, slot, waited);
""",
    # In version 3, results consisted of text alone, and facts were kept as one object.
    3: """
ALTER TABLE edges ADD COLUMN digest TEXT;
ALTER TABLE edges ADD COLUMN active TEXT;
ALTER TABLE edges ADD COLUMN refusals TEXT;
ALTER TABLE edges ADD COLUMN cost TEXT;
ALTER TABLE edges ADD COLUMN parts BLOB;
ALTER TABLE edges ADD COLUMN on_host INTEGER NOT NULL DEFAULT 0;
UPDATE edges SET digest = json_extract(extra, '$.digest'), active = json_extract(extra, '$.active'),
    refusals = json_extract(extra, '$.not_checkpointable') WHERE json_valid(extra);
ALTER TABLE edges DROP COLUMN extra;
""",
    # In version 4, no sandbox had a network.
    4: """
ALTER TABLE edges ADD COLUMN asked TEXT;
ALTER TABLE roots ADD COLUMN network TEXT NOT NULL DEFAULT 'none';
""",
    # In version 5, results had no note on the machine's load, and grades were ordinary calls.
    5: """
ALTER TABLE edges ADD COLUMN strain TEXT;
ALTER TABLE edges ADD COLUMN grade TEXT;
""",
    # In version 6, rollouts had neither rewards nor epochs, and their calls were not recorded in order.
    6: """
ALTER TABLE edges ADD COLUMN processor_s REAL;
CREATE TABLE numbered (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    id       TEXT NOT NULL UNIQUE,
    task     TEXT NOT NULL,
    label    TEXT NOT NULL,
    image    TEXT NOT NULL,
    root     BLOB NOT NULL,
    owner    TEXT NOT NULL,
    started  REAL NOT NULL,
    finished REAL,
    state    BLOB NOT NULL,
    epoch    INTEGER,
    reward   REAL,
    outcome  TEXT,
    start    BLOB NOT NULL
);
INSERT INTO numbered (id, task, label, image, root, owner, started, finished, state, start)
SELECT id, task, label, image, root, owner, started, finished, state, root FROM rollouts ORDER BY started;
DROP TABLE rollouts;
ALTER TABLE numbered RENAME TO rollouts;
CREATE INDEX rollouts_by_task ON rollouts (task, root);
CREATE INDEX rollouts_by_root ON rollouts (root, task);
CREATE INDEX rollouts_by_label ON rollouts (label);
CREATE INDEX rollouts_unfinished ON rollouts (owner) WHERE finished IS NULL;
CREATE TABLE steps (
    rollout     INTEGER NOT NULL,
    place       INTEGER NOT NULL,
    edge        INTEGER,
    source      INTEGER NOT NULL,
    ended       REAL NOT NULL,
    seconds     REAL NOT NULL,
    duration    REAL NOT NULL,
    processor_s REAL,
    exit_code   INTEGER,
    timed_out   INTEGER NOT NULL,
    note        TEXT,
    call,
    PRIMARY KEY (rollout, place)
) WITHOUT ROWID;
""",
}


def _make_if_missing(path: Path) -> None:
    """Creates an empty graph, completely or not at all: an existing empty file has lost its contents."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        if path.exists():
            if path.stat().st_size == 0:
                raise damaged(path, "it is empty")
            return
        unfinished = path.with_name(f"{path.name}.new")
        # SQLite would take remains of an earlier file of this name for changes to this one.
        for rest in (unfinished, *(path.with_name(path.name + suffix) for suffix in _BESIDE)):
            rest.unlink(missing_ok=True)
        os.close(make_private(unfinished))
        connection = sqlite3.connect(unfinished, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = OFF")  # an unfinished file is never used
            connection.executescript(SCHEMA.read_text())
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        finally:
            connection.close()
        unfinished.rename(path)
    finally:
        os.close(directory)


_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_abandoned: dict[Path, list[sqlite3.Connection]] = {}


def _abandon_all() -> None:
    """Gives up, in the child of a fork, every file that the parent had open.

    SQLite assumes in the child that it has locks that only the parent has, even for a new connection. Neither using nor
    closing the parent's connections is safe, so they are kept for as long as the child lives.
    """
    for database in list(_open_databases):
        database.abandon()


os.register_at_fork(after_in_child=_abandon_all)
