"""The interface of every system: serve, run statements within a time, and report what may have changed."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .reach import Definitions

CONFIGURATION = "/etc/tvsnap/sql.json"
"""In the image: `{"database": name}`, the database that is in use from the start."""


def configured_database(configuration: str = CONFIGURATION) -> str:
    """Returns the database that is in use from the start according to the image; empty if it names none."""
    try:
        with open(configuration, encoding="utf-8") as stream:
            return json.load(stream)["database"] or ""
    except FileNotFoundError:
        return ""


@dataclass
class Result:
    """The result of one statement.

    Attributes:
        columns: names; None if the statement returns no rows.
        rows: values as JSON can express them (see `results.py` for other types).
        more: there were more rows than requested.
        affected: rows that were changed; None if the database system does not report it.
    """

    columns: Optional[List[str]] = None
    rows: List[List[Any]] = field(default_factory=list)
    more: bool = False
    affected: Optional[int] = None


@dataclass
class Answer:
    """The answer to one request.

    Attributes:
        results: the results of its statements, up to the one that failed.
        messages: notices and warnings in the database system's words.
        error: the error of the statement that failed, in the database system's words; empty if none did.
        code: the database system's name for the error: an SQLSTATE, or SQLite's as SQLITE_CONSTRAINT.
        unparsed: the database system could not parse the text, so that nothing of it was executed.
        timed_out: the statement was cancelled at its deadline; or no server was available, for which another machine
            may be fast enough.
        lost: the connection has ended, with its session's state; a new one has taken its place.
        varies: its messages do not depend only on the statements: they contain times, or came from another client.
        counted: the session has counted it in a place that the facts do not show.
    """

    results: List[Result] = field(default_factory=list)
    messages: List[str] = field(default_factory=list)
    error: str = ""
    code: str = ""
    unparsed: bool = False
    timed_out: bool = False
    lost: bool = False
    varies: bool = False
    counted: bool = False


Facts = Tuple[Any, ...]
"""The database system's facts that show whether anything changed: equal ones mean that nothing did.

They change with the data, the schema, and the session's state: its transaction, variables, temporary tables, prepared
statements, cursors, locks, sequences, the database in use.
"""


class SystemFailed(Exception):
    """The server cannot be started or reached; the message says why."""


class StatementFailed(Exception):
    """The database system refused a statement of our own; the message is the database system's."""


@dataclass(frozen=True)
class Column:
    """A column of kind `integer`, `real`, `decimal`, `boolean`, `date`, `timestamp`, `binary` or `text`."""

    name: str
    kind: str
    nullable: bool = True


@dataclass(frozen=True)
class Table:
    """A table to create and fill.

    Attributes:
        rows: each as long as `columns`; None for NULL, bytes for binary, numbers or text in the system's own notation.
    """

    name: str
    columns: Tuple[Column, ...]
    rows: Any
    primary_key: Tuple[str, ...] = ()

    def definition(self, quote: Callable[[str], str], kinds: Mapping[str, str], in_keys: Mapping[str, str] = {}) -> str:
        """Returns the columns and keys of a CREATE TABLE, in parentheses.

        Args:
            quote: writes a name.
            kinds: types by the kinds of columns; others have the type of `text`.
            in_keys: replacements for types that a primary key cannot have.
        """
        parts = []
        for one in self.columns:
            kind = kinds.get(one.kind, kinds["text"])
            kind = in_keys.get(kind, kind) if one.name in self.primary_key else kind
            parts.append(f"{quote(one.name)} {kind}{'' if one.nullable else ' NOT NULL'}")
        if self.primary_key:
            parts.append(f"PRIMARY KEY ({', '.join(map(quote, self.primary_key))})")
        return f"({', '.join(parts)})"

    def names(self, quote: Callable[[str], str]) -> str:
        return ", ".join(quote(one.name) for one in self.columns)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class DatabaseSystem(ABC):
    """One database system, and its open session. Used by one thread.

    Methods that initialise, start, stop or load raise `SystemFailed`, with the row or the end of the server's log.
    """

    name: str = ""
    directories: Tuple[str, ...] = ()
    """Directories that only the server writes; absolute, inside."""

    @abstractmethod
    def initialise(self) -> None:
        """Creates an empty data directory if there is none; when an image is built."""

    @abstractmethod
    def start(self, *, loading: bool = False) -> None:
        """Starts the server if it does not run, opens the session, and warms both up.

        The large files of the data directory are opened for writing once, so that they are copied from the image now,
        and not in each fork. When an image is filled (`loading`), settings for sessions are omitted.
        """

    @abstractmethod
    def stop(self) -> None:
        """Closes the session and shuts the server down cleanly; when an image has been loaded."""

    def abandon(self) -> None:
        """Ends the session's connections in the system, and their statements; may be called during anything else.

        It may raise anything.
        """
        return

    @property
    @abstractmethod
    def processes(self) -> List[int]:
        """The ids of the server's first process, whose descendants belong to it. Empty without a server."""

    @abstractmethod
    def databases(self) -> List[str]:
        """Returns the databases, sorted, without the database system's own."""

    @abstractmethod
    def run(self, query: str, database: str, timeout: float, max_rows: int) -> Answer:
        """Runs one or more statements in the session, whose diagnostics (such as warnings) do not outlive this call.

        Args:
            query: the text, as it came.
            database: for this request only; empty for the one that is in use.
            timeout: seconds, for all of it; after that it is cancelled in the database system.
            max_rows: the most rows that are kept of each result.
        """

    @abstractmethod
    def reseed(self, database: str) -> None:
        """Sets a new seed for the session's random numbers, unless the session has set one itself.

        Otherwise, forks of one state would draw the same numbers.
        """

    @abstractmethod
    def facts(self) -> Optional[Facts]:
        """Returns the system's present facts; None if they are not available at present, and anything may have changed.

        It must not change anything that later statements could see.
        """

    def definitions(self, *, rows: bool = False) -> Optional[Definitions]:
        """Returns the definitions that depend on chance or the clock; None if they are not available at present.

        Called after `facts`. `rows` means that the session has surely changed only rows since the last call.
        """
        return Definitions()

    def expect(self, kind: str, query: str, database: str) -> None:
        """Prepares for statements, so that the system's reports on earlier ones do not depend on mere reads.

        `kind` is what the statements do according to their words: `read`, `write` or `other`.
        """
        return

    def drew(self) -> Optional[bool]:
        """Returns whether chance or the clock was used since the last call; None if the system cannot tell."""
        return None

    def seeded(self, database: str) -> bool:
        """Returns whether the session has set the seed of its random numbers, or may have."""
        return False

    def alone(self) -> bool:
        """Returns whether surely nobody else is connected, and what was written is stored without chance."""
        return False

    def timers(self) -> str:
        """Returns in words what the system does by itself after some time, according to its last facts.

        Examples are an event that is due, or the end of a transaction that has been idle for too long. Images switch
        all of this off; the agent may switch it on.
        """
        return ""

    @abstractmethod
    def schema(self, database: str, table: str) -> Dict[str, Any]:
        """Describes a database as JSON, or one of its tables.

        Returns:
            `{"database": name, "tables": [{"name", "kind" ("table", "view", ...), "columns": [{"name", "type",
            "nullable", "default" (text, if there is one)}], "primary_key": [column...], "foreign_keys": [{"columns",
            "table", "references"}], "indexes": [{"name", "columns", "unique"}]}]}`. Empty lists are omitted, except
            `columns`; tables are in the order of their names.

        Raises:
            LookupError: no such database or table; the message says so, and which there are.
            StatementFailed: the database system refused, as in a failed transaction.
        """

    @abstractmethod
    def create_database(self, name: str) -> None:
        """Creates an empty database if it does not exist; when an image is loaded."""

    def adopt(self, path: str, database: str) -> bool:
        """Takes a SQLite file over as a database, unchanged; returns whether it did. Only SQLite itself can."""
        return False

    @abstractmethod
    def load_script(self, path: str, database: str) -> List[str]:
        """Runs a file of SQL with the system's own client, in a database (empty: the file names its own).

        Returns what was skipped, a line each.
        """

    @abstractmethod
    def load_table(self, database: str, table: Table) -> None:
        """Creates a table, unless there is one of that name, and inserts rows into it."""
