"""SQLite: databases are files, and the session's own process runs the statements.

The files are `/srv/sqlite/NAME.db`, so that `sqlite3 /srv/sqlite/NAME.db` in the terminal finds them. They are observed
as any file is; the facts here are those that no file shows.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence

from ..system import (
    CONFIGURATION,
    Answer,
    DatabaseSystem,
    Facts,
    StatementFailed,
    SystemFailed,
    Table,
    configured_database,
    quoted,
)
from .connection import Connection, drawn, open_database
from .schema import describe, relations
from .statements import statements

FOLDER = "/srv/sqlite"
SUFFIX = ".db"

_UNPARSED = re.compile(r'near ".*": syntax error|unrecognized token: ".*"|incomplete input', re.DOTALL)
# Dates are text in SQLite: with a type of their own they would be compared as numbers.
_TYPES = {
    "integer": "INTEGER",
    "real": "REAL",
    "decimal": "NUMERIC",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "text": "TEXT",
}
_CUT_SHORT = ("SQLITE_INTERRUPT", "SQLITE_BUSY", "SQLITE_LOCKED")
_INTERRUPTED = "interrupted"
_CODES = {
    _INTERRUPTED: "SQLITE_INTERRUPT",
    "database is locked": "SQLITE_BUSY",
    "database table is locked": "SQLITE_LOCKED",
}
_REFUSED = (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError)
"""Errors of the driver; the last three for text that SQLite cannot accept, and for values that are too large."""


class SQLite(DatabaseSystem):
    """The databases of one folder, with one connection to each that was used."""

    name = "sqlite"

    def __init__(self, folder: str = FOLDER, configuration: str = CONFIGURATION) -> None:
        self._folder = os.path.realpath(folder)
        self._configuration = configuration
        self._in_use = ""
        self._connections: Dict[str, Connection] = {}
        self._drawn = drawn()

    # -- life ---------------------------------------------------------------------------------------------------------

    def initialise(self) -> None:
        try:
            os.makedirs(self._folder, exist_ok=True)
        except OSError as error:
            raise SystemFailed(f"cannot make {self._folder}: {error.strerror}") from None

    def start(self, *, loading: bool = False) -> None:
        self.initialise()
        self._in_use = configured_database(self._configuration)
        there = self.databases()
        for name in there:
            with contextlib.suppress(OSError), open(self._path(name), "r+b"):
                pass
        self._in_use = self._in_use or next(iter(there), "")
        if self._in_use in there:
            with contextlib.suppress(StatementFailed):  # not a file of SQLite; statements will report that
                self.schema("", "")

    def stop(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    @property
    def processes(self) -> List[int]:
        return []

    def databases(self) -> List[str]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted(name[: -len(SUFFIX)] for name in names if name.endswith(SUFFIX) and name != SUFFIX)

    # -- statements ---------------------------------------------------------------------------------------------------

    def run(self, query: str, database: str, timeout: float, max_rows: int) -> Answer:
        answer = Answer()
        deadline = time.monotonic() + timeout
        try:
            connection = self._connection(database, answer)
        except (LookupError, sqlite3.Error) as error:
            answer.error, answer.code, answer.unparsed = str(error), _code(error), isinstance(error, LookupError)
            return answer
        with connection.limited(timeout, query):
            for number, statement in enumerate(statements(query), 1):
                was_open = connection.in_transaction
                try:
                    if time.monotonic() >= deadline:  # statements that are short one by one
                        raise sqlite3.OperationalError(_INTERRUPTED)
                    answer.results.append(connection.run(statement, max_rows))
                except _REFUSED as error:
                    answer.error = str(error) or "out of memory"
                    answer.code = _code(error)
                    answer.unparsed = not answer.results and bool(_UNPARSED.fullmatch(answer.error))
                    answer.timed_out = time.monotonic() >= deadline and answer.code.startswith(_CUT_SHORT)
                    if answer.timed_out:
                        answer.error += f"; the timeout of {timeout:g} s has passed"
                    if number > 1:
                        answer.error = f"statement {number}: {answer.error}"
                    if was_open and not connection.in_transaction:
                        answer.messages.append("the transaction was rolled back")
                    break
        return answer

    def reseed(self, database: str) -> None:
        """Does nothing: random numbers come from the operating system here, new ones each time."""

    def facts(self) -> Optional[Facts]:
        try:
            conditions = ((name, one.condition()) for name, one in sorted(self._connections.items()))
            return tuple((name, *condition) for name, condition in conditions if condition is not None)
        except sqlite3.Error:
            return None

    def drew(self) -> Optional[bool]:
        """See `DatabaseSystem.drew`: SQLite runs in this process, which sees each use of chance and the clock."""
        drawn_before, self._drawn = self._drawn, drawn()
        return drawn_before != self._drawn or any(one.guessed() for one in self._connections.values())

    def alone(self) -> bool:
        """See `DatabaseSystem.alone`: another's lock makes a statement fail, or wait, and changes nothing else."""
        return not any(connection.journalled for connection in self._connections.values())

    def schema(self, database: str, table: str) -> Dict[str, Any]:
        try:
            connection = self._connection(database, Answer())
            connection.look()
            listing = relations(connection.ask)
            chosen = [one for one in listing if one.name.lower() == table.lower()] if table else listing
            if table and not chosen:
                names = ", ".join(one.name for one in listing)
                raise LookupError(f"no such table: {table}; there are{f': {names}' if names else ' none'}")
            tables = [describe(connection.ask, one) for one in chosen]
        except sqlite3.Error as error:
            raise StatementFailed(str(error)) from None
        return {"database": self._named(database), "tables": tables}

    # -- loading ------------------------------------------------------------------------------------------------------

    def create_database(self, name: str) -> None:
        if not name or name.startswith(".") or "/" in name or "\0" in name:
            raise SystemFailed(f'a database cannot be called "{name}": it is to name a file in {self._folder}')
        if name in self.databases():
            return
        with self._loading(name, "rwc") as connection:
            connection.execute("PRAGMA user_version = 0")
            connection.execute("VACUUM")  # so that there is a header, which shows programs the type of the file

    def load_script(self, path: str, database: str) -> List[str]:
        command = ["sqlite3", "-batch", "-bail", "-init", os.devnull]
        # Nothing has to survive a crash of the build.
        command += ["-cmd", "PRAGMA journal_mode = MEMORY", "-cmd", "PRAGMA synchronous = OFF"]
        command.append(self._path(database) if database else ":memory:")
        try:
            with open(path, "rb") as script:
                process = subprocess.run(
                    command, stdin=script, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=self._folder
                )
        except FileNotFoundError as error:
            reason = f"{error.filename} is not there"
            if error.filename == command[0]:
                reason = "the program sqlite3 is not in the image; scripts are run with it (package sqlite3)"
            raise SystemFailed(reason) from None
        if process.returncode:
            message = process.stderr.decode("utf-8", "replace").strip()
            raise SystemFailed(message[-2000:] or f"sqlite3 ended with {process.returncode}")
        return []

    def load_table(self, database: str, table: Table) -> None:
        name = quoted(table.name)
        count = 0

        def rows() -> Iterator[Sequence[Any]]:
            nonlocal count
            for row in table.rows:
                count += 1
                yield row

        with self._loading(database) as connection:
            try:
                connection.execute("BEGIN")
                connection.execute(f"CREATE TABLE IF NOT EXISTS {name} {table.definition(quoted, _TYPES)}")
                places = ", ".join("?" * len(table.columns))
                connection.executemany(f"INSERT INTO {name} ({table.names(quoted)}) VALUES ({places})", rows())
                connection.execute("COMMIT")
            except _REFUSED as error:
                where = f"row {count}: " if count else ""
                raise SystemFailed(f"{where}{error}") from None

    def adopt(self, path: str, database: str) -> bool:
        """See `DatabaseSystem.adopt`.

        The file is unchanged, except that a write-ahead log becomes SQLite's ordinary journal: with a log, reading
        writes.
        """
        with self._loading(database) as connection:
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise SystemFailed(f'the database "{database}" holds tables already: list the SQLite file first')
        if database in self._connections:
            self._connections.pop(database).close()
        shutil.copyfile(path, self._path(database))
        with contextlib.closing(open_database(self._path(database))) as connection:
            try:
                connection.execute("PRAGMA journal_mode = DELETE")
                verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            except sqlite3.Error as error:
                verdict = str(error)
        if verdict != "ok":
            raise SystemFailed(f"it is not a sound SQLite database: {verdict}")
        return True

    @contextlib.contextmanager
    def _loading(self, name: str, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        """Opens a connection for the block, for statements that do not belong to the session."""
        try:
            connection = open_database(self._path(name), mode)
            connection.execute("PRAGMA synchronous = OFF")
        except sqlite3.Error as error:
            raise SystemFailed(f"cannot open {self._path(name)}: {error}") from None
        try:
            yield connection
        finally:
            connection.close()

    # -- connections --------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name + SUFFIX)

    def _named(self, database: str) -> str:
        """Returns the database that a request means; empty if there is none."""
        return database or self._in_use or next(iter(self.databases()), "")

    def _connection(self, database: str, answer: Answer) -> Connection:
        """Returns the connection to a database; notes in the answer if an earlier connection's state is lost.

        Raises:
            LookupError: there is no such database; with those that there are.
        """
        there = self.databases()
        name = self._named(database)
        connection = self._connections.get(name)
        if connection is not None and not connection.in_transaction and connection.replaced:
            connection.close()
            del self._connections[name]
            connection = None
            answer.lost = True
            answer.messages.append(f"{self._path(name)} is another file than before: its connection was closed")
        if connection is not None:
            return connection
        if name not in there:
            path = self._path(name or "NAME")
            if there:
                wanted = f'no such database: "{name}"; there are: {", ".join(there)}; a file {path} would be one'
                way_out = " (what is attached is named in the statement, as in NAME.TABLE)"
            else:
                wanted = f"there is no database: a file {path} would be one"
                way_out = f"; make it in the terminal, as by: touch {path}"
            raise LookupError(wanted + way_out)
        self._connections[name] = connection = Connection(self._path(name))
        return connection


def _code(error: BaseException) -> str:
    """Returns SQLite's name for an error; Python knows it from 3.11 on, before that only its class."""
    named: Optional[str] = getattr(error, "sqlite_errorname", None)
    if named:
        return named
    if isinstance(error, sqlite3.IntegrityError):
        return "SQLITE_CONSTRAINT"
    return _CODES.get(str(error), "SQLITE_ERROR" if isinstance(error, sqlite3.Error) else "")
