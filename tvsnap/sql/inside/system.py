"""What every system does for a session: serve, run statements within a time, and tell what may have changed."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .reach import Definitions

CONFIGURATION = "/etc/tvsnap/sql.json"
"""In the image: `{"database": name}`, the database that is in use from the start."""


def configured_database(configuration: str = CONFIGURATION) -> str:
    """Returns the database that the image says is in use from the start; empty if it says none."""
    try:
        with open(configuration, encoding="utf-8") as stream:
            return json.load(stream)["database"] or ""
    except FileNotFoundError:
        return ""


@dataclass
class Result:
    """What one statement came to.

    Attributes:
        columns: names; None if the statement returns no rows.
        rows: values that JSON has (see `results.py` for those that it has not).
        more: there were more rows than were asked for.
        affected: rows that were changed; None if the database system does not say.
    """

    columns: Optional[List[str]] = None
    rows: List[List[Any]] = field(default_factory=list)
    more: bool = False
    affected: Optional[int] = None


@dataclass
class Answer:
    """What one request came to.

    Attributes:
        results: of its statements, up to the one that failed.
        messages: notices and warnings, as the database system words them.
        error: of the statement that failed, as the database system words it; empty if none did.
        code: the database system's name for the error: an SQLSTATE, or SQLite's as SQLITE_CONSTRAINT.
        unparsed: the database system could not even read the text, so that nothing of it was executed.
        timed_out: the statement was cancelled at its deadline; or no server could be had, for which another machine may
            be quick enough.
        lost: the connection is gone, with all that it held; a fresh one has taken its place.
        told: its messages are not of the statements alone: they hold times, or came from somebody else.
        counted: the session has kept account of it in a place that no fact shows.
    """

    results: List[Result] = field(default_factory=list)
    messages: List[str] = field(default_factory=list)
    error: str = ""
    code: str = ""
    unparsed: bool = False
    timed_out: bool = False
    lost: bool = False
    told: bool = False
    counted: bool = False


Facts = Tuple[Any, ...]
"""What the database system knows that tells whether anything changed: two that are equal say that nothing did.

They change with the data, the schema, and what the session holds: its transaction, variables, temporary tables,
prepared statements, cursors, locks, sequences, the database in use.
"""


class SystemFailed(Exception):
    """The server cannot be started or reached; the message says why."""


class StatementFailed(Exception):
    """The database system refused a statement of our own; the message is the database system's."""


@dataclass(frozen=True)
class Column:
    """A column to be made, of kind `integer`, `real`, `decimal`, `boolean`, `date`, `timestamp`, `binary` or `text`."""

    name: str
    kind: str
    nullable: bool = True


@dataclass(frozen=True)
class Table:
    """A table to be made and filled.

    Attributes:
        rows: each as long as `columns`; None for NULL, bytes for binary, numbers or text in the system's own notation.
    """

    name: str
    columns: Tuple[Column, ...]
    rows: Any
    primary_key: Tuple[str, ...] = ()

    def definition(self, quote: Callable[[str], str], kinds: Mapping[str, str], in_keys: Mapping[str, str] = {}) -> str:
        """Returns what stands in a CREATE TABLE, in parentheses.

        Args:
            quote: writes a name.
            kinds: types by the kinds of columns; what is missing has the type of `text`.
            in_keys: types in place of those that a primary key cannot have.
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
    """One database system, and the session that it holds open. Used by one thread.

    What initialises, starts, stops or loads raises `SystemFailed`, with the row or the end of the server's log.
    """

    directories: Tuple[str, ...] = ()
    """Those that only the server writes; absolute, inside."""

    @abstractmethod
    def initialise(self) -> None:
        """Makes an empty data directory, unless there is one; when an image is built."""

    @abstractmethod
    def start(self, *, loading: bool = False) -> None:
        """Starts the server if it does not run, opens the session, and warms both up.

        The large files of the data directory are opened for writing once: what is copied up from the image need not be
        in each fork.

        Args:
            loading: an image is being filled: what is set for the sake of sessions only is left out.
        """

    @abstractmethod
    def stop(self) -> None:
        """Closes the session and shuts the server down cleanly; when an image has been loaded."""

    def abandon(self) -> None:
        """Ends the session's connections in the system, and with them what runs there; called amid anything else.

        It may raise anything.
        """
        return

    @property
    @abstractmethod
    def processes(self) -> List[int]:
        """The ids of the server's first process; what descends from it belongs to it. Empty without a server."""

    @abstractmethod
    def databases(self) -> List[str]:
        """The databases that there are, sorted, without the database system's own."""

    @abstractmethod
    def run(self, query: str, database: str, timeout: float, max_rows: int) -> Answer:
        """Runs one or more statements in the session, of which diagnostics (its warnings, say) do not outlive this.

        Args:
            query: the text, as it came.
            database: for this request only; empty for the one that is in use.
            timeout: seconds, for all of it; what runs longer is cancelled in the database system.
            max_rows: rows that are kept of each result.
        """

    @abstractmethod
    def reseed(self, database: str) -> None:
        """Gives the session's random numbers a new beginning, unless the session has set one of its own.

        Forks of one state would else draw the same.
        """

    @abstractmethod
    def facts(self) -> Optional[Facts]:
        """Returns what the system knows now; None if that cannot be told at present, and anything may have changed.

        Must itself leave everything as it is, for later statements to see.
        """

    def definitions(self, *, rows: bool = False) -> Optional[Definitions]:
        """Returns what is defined that is left to chance or the clock; None if that cannot be told at present.

        Asked after `facts`.

        Args:
            rows: since this was asked last, the session has surely changed nothing but rows.
        """
        return Definitions()

    def expect(self, kind: str, query: str, database: str) -> None:
        """Makes ready for statements, so that what the system says of those before them does not hang on mere reads.

        Args:
            kind: what they do by their words: `read`, `write` or `other`.
            query, database: as of `run`.
        """
        return

    def drew(self) -> Optional[bool]:
        """Whether chance or the clock was asked for since this was asked last; None if the system cannot say."""
        return None

    def seeded(self, database: str) -> bool:
        """Whether the session has set the beginning of its random numbers, or may have."""
        return False

    def alone(self) -> bool:
        """Whether it is known that nobody else is connected, and that what was written is kept without chance."""
        return False

    def timers(self) -> str:
        """Returns in words what the system does by itself once some time has passed, as of the last look at its facts.

        Such as an event that is due, or the end of a transaction that has been idle for too long. Images switch all of
        it off; the agent may switch it on.
        """
        return ""

    @abstractmethod
    def schema(self, database: str, table: str) -> Dict[str, Any]:
        """Describes a database as JSON, or one of its tables.

        Returns:
            `{"database": name, "tables": [{"name", "kind" ("table", "view", ...), "columns": [{"name", "type",
            "nullable", "default" (text, if there is one)}], "primary_key": [column...], "foreign_keys": [{"columns",
            "table", "references"}], "indexes": [{"name", "columns", "unique"}]}]}`. What is empty is left out but for
            `columns`; tables in the order of their names.

        Raises:
            LookupError: no such database or table; the message says so, and which there are.
            StatementFailed: the database system refused, as in a failed transaction.
        """

    @abstractmethod
    def create_database(self, name: str) -> None:
        """Makes an empty database, unless it is there already; when an image is loaded."""

    def adopt(self, path: str, database: str) -> bool:
        """Takes a SQLite file over as a database, as it is; returns whether it did. Only SQLite itself can."""
        return False

    @abstractmethod
    def load_script(self, path: str, database: str) -> List[str]:
        """Runs a file of SQL with the system's own client, in a database (empty: the file names its own).

        Returns what of it was passed over, a line each.
        """

    @abstractmethod
    def load_table(self, database: str, table: Table) -> None:
        """Makes a table, unless there is one of that name, and puts rows into it."""
