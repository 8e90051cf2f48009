"""One connection to a SQLite database: runs statements, and relies on SQLite's own report of what they did.

All methods raise `sqlite3.Error` if SQLite refuses.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sqlite3
import time
from typing import Any, Iterator, List, Optional, Set, Tuple, Union
from urllib.parse import quote as quote_url

from ..dialects import PRAGMA_LOOKUPS
from ..results import binary
from ..system import Result
from . import decimals
from .files import remember, times_asked

PATIENCE = 5.0
"""Seconds that a statement waits for a lock of another process, unless `PRAGMA busy_timeout` says otherwise."""
LARGEST = 64 * 1024 * 1024
"""The approximate number of bytes that are kept of one result."""
CHECKED_EVERY = 1000
"""Steps of SQLite's virtual machine between two checks of the clock: some 20 microseconds."""
BLOB_LIMIT = 1_000_000_000
_SMALL_ROWID = 1 << 40

Action = Tuple[int, Optional[str], Optional[str], Optional[str]]
"""An action that the authorizer must allow: its kind, two names, and the database that it is in."""

_READING = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE))
_ROWS = frozenset((sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE))
_COUNTED = frozenset((sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE))
_RELATIONS = frozenset((sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_CREATE_VIEW))
_SCHEMA_TABLES = ("sqlite_master", "sqlite_temp_master")
_ACTING = frozenset(("incremental_vacuum", "optimize", "shrink_memory", "wal_checkpoint"))
"""Pragmas that do something without an argument."""


def open_database(path: str, mode: str = "rw") -> sqlite3.Connection:
    """Opens a database; `mode` is that of SQLite's URIs: `rw`, `ro`, or `rwc` to create one."""
    opened = sqlite3.connect(
        f"file:{quote_url(path)}?mode={mode}", uri=True, isolation_level=None, timeout=PATIENCE, cached_statements=0
    )
    with contextlib.suppress(OSError):
        remember(path)
    return opened


class Connection:
    """An open connection to an existing database, and the traces of statements on it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._base = open_database(path)
        try:
            self._base.text_factory = _text
            self.ask("PRAGMA synchronous = OFF")  # a sandbox does not outlive the machine
            # SQLite draws its seed once per process: forks of one would all draw the same numbers.
            self._base.create_function("random", 0, _random)
            self._base.create_function("randomblob", 1, _randomblob)
            self._base.create_function("regexp", 2, self._matches, deterministic=True)  # as in the program sqlite3
            decimals.register(self._base, self._complain)
            self._files = self._open_files()
        except sqlite3.Error:
            self._base.close()
            raise
        self._complaint = ""
        self._actions: Set[Action] = set()
        self._acts = 0
        self._touched: Set[str] = set()
        self._rowid = 0

    def close(self) -> None:
        self._base.close()

    @property
    def in_transaction(self) -> bool:
        return self._base.in_transaction

    @property
    def replaced(self) -> bool:
        """Whether the database's file was deleted, or replaced by another one."""
        path = os.path.realpath(self._path)
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                if os.readlink(f"/proc/self/fd/{descriptor}") == path:
                    return False
        return True

    @property
    def journalled(self) -> bool:
        """Whether a journal or a log of its files has contents, which include numbers that SQLite drew by chance."""
        for path in self._files:
            for suffix in ("-journal", "-wal"):
                with contextlib.suppress(OSError):
                    if os.stat(path + suffix).st_size:
                        return True
        return False

    def condition(self) -> Optional[Tuple[Any, ...]]:
        """Returns the facts that show whether anything changed on this connection; None if it is like a new one.

        They are the counters that statements can query, whether a transaction is open and which databases it has read
        (from the first read on it keeps others from writing, or does not see what they write), and how many statements
        did something that neither shows.
        """
        counters = self.ask("SELECT total_changes(), changes(), last_insert_rowid()")[0]
        facts = (*counters, self.in_transaction, tuple(sorted(self._touched)), self._acts)
        return None if facts == (0, 0, 0, False, (), 0) else facts

    def guessed(self) -> bool:
        """Returns whether the last row since the last call may have been given its number by chance.

        That happens if the largest number is in use; chance hardly ever draws a small one.
        """
        rowid_before, self._rowid = self._rowid, self.ask("SELECT last_insert_rowid()")[0][0]
        return self._rowid != rowid_before and self._rowid > _SMALL_ROWID

    @contextlib.contextmanager
    def limited(self, seconds: float, query: str) -> Iterator[None]:
        """A block in which the statements of a query are interrupted when the time is over.

        So is waiting for a lock, unless the query itself reads or sets how long that may take.
        """
        deadline = time.monotonic() + seconds
        patience: int = self.ask("PRAGMA busy_timeout")[0][0]
        hurried = patience > seconds * 1000 and "busy_timeout" not in query.lower()
        if hurried:
            self.ask(f"PRAGMA busy_timeout = {math.ceil(seconds * 1000)}")
        self._base.set_progress_handler(lambda: time.monotonic() > deadline, CHECKED_EVERY)
        try:
            yield
        finally:
            self._base.set_progress_handler(None, 0)
            if hurried:
                self.ask(f"PRAGMA busy_timeout = {patience}")

    def run(self, statement: str, max_rows: int) -> Result:
        settled = not self.in_transaction
        # Setting the authorizer expires the statements that older Pythons cache in spite of the setting above.
        self._actions.clear()
        self._base.set_authorizer(self._allow)
        failed, self._complaint = True, ""
        try:
            result = self._fetch(statement, max_rows)
            failed = False
        except sqlite3.OperationalError:
            if self._complaint:
                raise sqlite3.OperationalError(self._complaint) from None
            raise
        finally:
            self._note(statement, settled and not self.in_transaction, failed)
        if any(kind in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH) for kind, *_ in self._actions):
            files_before, self._files = self._files, self._open_files()
            for path in self._files - files_before:
                with contextlib.suppress(OSError):
                    remember(path)
        return result

    def _matches(self, pattern: Any, text: Any) -> Optional[bool]:
        """Returns whether a text, or what a value is as text, holds a match of a regular expression."""
        if pattern is None or text is None:
            return None
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        try:
            return re.search(str(pattern), str(text)) is not None
        except (re.error, RecursionError) as error:
            self._complaint = f"REGEXP {pattern!r}: {error}"
            raise

    def _complain(self, message: str) -> None:
        self._complaint = message

    def _open_files(self) -> Set[str]:
        return {path for _, _, path in self.ask("PRAGMA database_list") if path}

    def ask(self, query: str) -> List[Tuple[Any, ...]]:
        """Returns all rows of a query of our own, which leaves no trace."""
        with contextlib.closing(self._base.execute(query)) as cursor:
            return cursor.fetchall()

    def look(self) -> None:
        if self.in_transaction:
            self._touched.add("main")

    def _allow(
        self, kind: int, one: Optional[str], two: Optional[str], database: Optional[str], _within: Optional[str]
    ) -> int:
        self._actions.add((kind, one, two, database))
        return sqlite3.SQLITE_OK

    def _fetch(self, statement: str, max_rows: int) -> Result:
        with contextlib.closing(self._base.execute(statement)) as cursor:
            if cursor.description is None:
                return Result(affected=self._affected())
            result = Result(columns=[column[0] for column in cursor.description])
            room = LARGEST
            for row in cursor:
                if len(result.rows) == max_rows or room <= 0:
                    result.more = True
                    break
                result.rows.append([_value(value) for value in row])
                room -= sum(len(value) if isinstance(value, (str, bytes)) else 32 for value in row)
            if result.more and any(map(_changes, self._actions)):
                for _ in cursor:  # a statement that changes something must run to its end
                    pass
            return result

    def _affected(self) -> Optional[int]:
        kinds = {action[0] for action in self._actions if _changes(action)}
        if not kinds or not kinds <= _ROWS:
            return None
        affected: int = self.ask("SELECT changes()")[0][0]
        return affected

    def _read_by(self, statement: str) -> Set[str]:
        """Returns the databases in which a statement opens a transaction; all, if that is not known."""
        names = {number: name for number, name, _ in self.ask("PRAGMA database_list")}
        try:
            steps = self.ask("EXPLAIN " + statement)
        except sqlite3.Error:  # it cannot be repeated, for example as what it created exists already
            return set(names.values())
        return {names[step[2]] for step in steps if step[1] == "Transaction" and step[2] in names}

    def _note(self, statement: str, settled: bool, failed: bool) -> None:
        """Notes the effects of the last statement; `settled` means that no transaction was open before or after.

        A failed statement was undone, as far as possible.
        """
        changes = {action for action in self._actions if _changes(action)}
        pragma = any(kind == sqlite3.SQLITE_PRAGMA for kind, *_ in changes)
        if changes and not (settled and (not pragma if failed else _elsewhere(changes, self._actions))):
            self._acts += 1  # it may have effects that the counters do not show
        if not self.in_transaction:
            self._touched.clear()
            return
        unnamed = False
        for kind, _, column, database in self._actions:
            if database or kind == sqlite3.SQLITE_PRAGMA:
                self._touched.add(database or "main")
                # If no column of a table is read, its database is known only if the statement names the table.
            unnamed = unnamed or (kind == sqlite3.SQLITE_READ and not column and not database)
        if unnamed:
            self._touched.update(self._read_by(statement))
        self._touched.discard("temp")  # no other process uses it


def _changes(action: Action) -> bool:
    """Returns whether an action is more than reading."""
    kind, one, two, _ = action
    if kind == sqlite3.SQLITE_PRAGMA:
        name = (one or "").lower()
        return name in _ACTING if two is None else name not in PRAGMA_LOOKUPS
        # A table-valued function, such as json_each, is declared by something that looks like an update of the schema.
    return kind not in _READING and not (kind == sqlite3.SQLITE_UPDATE and one in _SCHEMA_TABLES)


def _elsewhere(changes: Set[Action], actions: Set[Action]) -> bool:
    """Returns whether the counters show any effect of a statement outside of a transaction.

    They show an update or a delete. They do not show an insert of no rows, which may have used up a key. Tables and
    views that exist already are not created.
    """
    if any(database != "main" for _, _, _, database in changes):
        return False
    if {action[0] for action in changes} <= _COUNTED:
        return True
    creations = {action for action in changes if action[:2] != (sqlite3.SQLITE_INSERT, "sqlite_master")}
    written = any(kind == sqlite3.SQLITE_UPDATE and one == "sqlite_master" for kind, one, _, _ in actions)
    return not written and {action[0] for action in creations} <= _RELATIONS


def _text(data: bytes) -> Any:
    """Returns a text, or the JSON of binary data if it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return binary(data)


def _value(value: Any) -> Any:
    if isinstance(value, bytes):
        return binary(value)
    if isinstance(value, float) and math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return value


_drawn = [0]


def drawn() -> int:
    """Returns how often chance or the clock has been used in this process."""
    return _drawn[0] + times_asked()


def _random() -> int:
    _drawn[0] += 1
    return max(int.from_bytes(os.urandom(8), "big", signed=True), 1 - 2**63)  # so that its abs() is a number, too


def _randomblob(size: Union[int, float, str, bytes, None]) -> bytes:
    _drawn[0] += 1
    try:
        wanted = int(size or 0)
    except (ValueError, OverflowError):
        wanted = 1
    if wanted > BLOB_LIMIT:
        raise ValueError("string or blob too big")
    return os.urandom(max(wanted, 1))
