"""What databases a MySQL dump defines, found in a first pass; and its statements, each with the database it is for."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tvsnap.images.dumps.errors import DumpError
from tvsnap.images.dumps.notes import Notes
from tvsnap.images.dumps.splitting import Statement, statements
from tvsnap.images.dumps.tables import Table, alter, define
from tvsnap.images.dumps.tokens import Cursor, Token, executed, tokens

SYSTEM = {"mysql", "sys", "performance_schema", "information_schema", "ndbinfo"}
"""The server's own databases; another server has its own."""

_ROWS = (b"insert", b"replac")
_CHANGES = {"UPDATE", "DELETE"}
_KNOWN = {*_CHANGES, "LOCK", "UNLOCK", "BEGIN", "START", "COMMIT", "ANALYZE", "OPTIMIZE"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A statement on its way.

    Attributes:
        number: counted from 0.
        database: the one in use; empty before the first USE.
        text: of the statement; empty for one that brings rows.
        every: its tokens, with the marks of executed comments; none for one that brings rows.
    """

    number: int
    statement: Statement
    database: str
    text: str = ""
    every: tuple[Token, ...] = ()

    @property
    def brings_rows(self) -> bool:
        """Whether it is an INSERT or REPLACE."""
        return not self.every

    @property
    def changes_rows(self) -> bool:
        """Whether it is an UPDATE or DELETE."""
        return self.cursor().peek().upper in _CHANGES

    def cursor(self) -> Cursor:
        """Walks over what is executed of it."""
        return Cursor(self.text, executed(self.every))


def pieces(source: Path) -> Iterator[Piece]:
    """Reads a dump, and follows its USE statements.

    Raises:
        DumpError: see `statements`.
    """
    database = ""
    for number, statement in enumerate(statements(source)):
        if statement.text[:6].lower() in _ROWS:
            yield Piece(number, statement, database)
            continue
        text = statement.text.decode("utf-8", "surrogateescape")
        piece = Piece(number, statement, database, text, tuple(tokens(text)))
        cursor = piece.cursor()
        if cursor.take("USE"):
            database = cursor.name()
            piece = Piece(number, statement, database, text, piece.every)
        if piece.every:
            yield piece


@dataclass(frozen=True, slots=True)
class View:
    """A view, and the query behind it in MySQL's words."""

    name: str
    columns: tuple[str, ...]
    query: str


@dataclass(slots=True)
class Database:
    """What a dump defines of a database; names in lower case lead to tables and views, in the order of the dump."""

    name: str
    tables: dict[str, Table] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)

    def table(self, name: str) -> Table | None:
        """The table of this name, without regard to case."""
        return self.tables.get(name.lower())


class Schema:
    """The databases of a dump, by their names; the empty name is what no USE came before."""

    def __init__(self) -> None:
        self.databases: dict[str, Database] = {}

    def database(self, name: str) -> Database:
        """The database of this name, which may be new."""
        return self.databases.setdefault(name, Database(name))


def read_schema(source: Path, notes: Notes) -> Schema:
    """Reads all definitions of a dump.

    Args:
        notes: what is left out is noted there.

    Raises:
        DumpError: the dump cannot be read, or a table not be understood.
    """
    return _Definitions(source, notes).schema


class _Definitions:
    def __init__(self, source: Path, notes: Notes) -> None:
        self.schema = Schema()
        self._source = source
        self._notes = notes
        for piece in pieces(source):
            if piece.database.lower() in SYSTEM:
                if not piece.brings_rows and piece.cursor().take("USE"):
                    notes.add("{n} database{s} of the server itself left out", piece.database)
            elif not piece.brings_rows:
                self._read(piece)

    def _read(self, piece: Piece) -> None:
        cursor = piece.cursor()
        verb = cursor.next().upper
        if verb == "CREATE":
            self._create(piece, cursor)
        elif verb == "DROP":
            self._drop(piece, cursor)
        elif verb == "ALTER" and cursor.take("TABLE"):
            self._alter(piece, cursor)
        elif verb == "USE":
            self.schema.database(piece.database)
        elif verb == "SET":
            self._check_character_set(piece, cursor)
        elif kind := left_out(piece):
            self._notes.add(kind)
        elif verb not in _KNOWN:
            self._notes.add("{n} statement{s} of other kinds left out", _beginning(piece))

    def _fails(self, piece: Piece, reason: str) -> DumpError:
        return DumpError(f"{self._source}: line {piece.statement.line}: {reason}")

    def _check_character_set(self, piece: Piece, cursor: Cursor) -> None:
        if cursor.take("NAMES"):
            name = cursor.next().text.strip("'\"").lower()
            if name not in ("utf8", "utf8mb3", "utf8mb4", "ascii", "binary", "default"):
                raise self._fails(
                    piece, f"text in {name} cannot be converted; dump it with --default-character-set=utf8mb4"
                )

    def _create(self, piece: Piece, cursor: Cursor) -> None:
        cursor.take("OR", "REPLACE")
        temporary = cursor.take("TEMPORARY")
        if cursor.take("DATABASE") or cursor.take("SCHEMA"):
            cursor.take("IF", "NOT", "EXISTS")
            if (name := cursor.name()).lower() not in SYSTEM:
                self.schema.database(name)
        elif cursor.take("TABLE") and not temporary:
            self._table(piece, cursor)
        elif cursor.peek().upper in ("UNIQUE", "INDEX", "KEY", "FULLTEXT", "SPATIAL"):
            self._index(piece, cursor)
        else:
            self._other(piece, cursor)

    def _table(self, piece: Piece, cursor: Cursor) -> None:
        cursor.take("IF", "NOT", "EXISTS")
        database, name = self._place(piece, cursor)
        if (known := database.tables.get(name.lower())) and known.name != name:
            self._notes.add("{n} table{s} left out for one whose name differs only in case", known.name)
        table = Table(name, piece.number)
        if cursor.take("LIKE"):
            _, like = cursor.qualified_name()
            if not (original := database.table(like)):
                raise self._fails(piece, f'CREATE TABLE {name}: there is no table "{like}" in the dump')
            table = copy.deepcopy(original)
            table.name, table.statement, table.foreign_keys = name, piece.number, []
        else:
            try:
                define(table, cursor)
            except ValueError as error:
                raise self._fails(piece, f"CREATE TABLE {name}: {error}") from None
        database.tables.pop(name.lower(), None)
        database.tables[name.lower()] = table

    def _place(self, piece: Piece, cursor: Cursor) -> tuple[Database, str]:
        database, name = cursor.qualified_name()
        return self.schema.database(database or piece.database), name

    def _index(self, piece: Piece, cursor: Cursor) -> None:
        """`CREATE UNIQUE INDEX name ON table (...)`, read as `ADD UNIQUE INDEX name (...)`."""
        every = executed(piece.every)
        place = next((i for i, token in enumerate(every) if token.upper == "ON"), 0)
        rest = Cursor(piece.text, every[place + 1 :])
        database, name = self._place(piece, rest)
        body = [token for token in every if token.start < every[place].start or token.start >= rest.peek().start]
        add = body[0]._replace(text="ADD")
        if table := database.table(name):
            alter(table, Cursor(piece.text, [add, *body[1:]]))

    def _other(self, piece: Piece, cursor: Cursor) -> None:
        while not cursor.done:
            word = cursor.next().upper
            if word == "VIEW":
                self._view(piece, cursor)
                return
            if word in ("TRIGGER", "PROCEDURE", "FUNCTION", "EVENT"):
                cursor.take("IF", "NOT", "EXISTS")
                self._notes.add(f"{{n}} {word.lower()}{{s}} left out", cursor.qualified_name()[1])
                return
            if word == "(":
                break
        if kind := left_out(piece):
            self._notes.add(kind)
        else:
            self._notes.add("{n} statement{s} of other kinds left out", _beginning(piece))

    def _view(self, piece: Piece, cursor: Cursor) -> None:
        database, name = self._place(piece, cursor)
        columns = tuple(part.name() for part in cursor.parenthesised().items()) if cursor.peek().upper == "(" else ()
        cursor.take("AS")
        every = executed(piece.every)
        if [token.upper for token in every[-2:]] == ["CHECK", "OPTION"]:
            every = every[: max(place for place, token in enumerate(every) if token.upper == "WITH")]
        database.views[name.lower()] = View(name, columns, piece.text[cursor.peek().start : every[-1].end])

    def _drop(self, piece: Piece, cursor: Cursor) -> None:
        kind = cursor.take_any("TABLE", "VIEW", "DATABASE", "SCHEMA")
        cursor.take("IF", "EXISTS")
        for item in cursor.items():
            if kind in ("TABLE", "VIEW"):
                database, name = self._place(piece, item)
                (database.tables if kind == "TABLE" else database.views).pop(name.lower(), None)
            elif kind:
                self.schema.databases.pop(item.name(), None)

    def _alter(self, piece: Piece, cursor: Cursor) -> None:
        database, name = self._place(piece, cursor)
        if table := database.table(name):
            for unknown in alter(table, cursor):
                self._notes.add("{n} change{s} of a table left out", f"{name} {unknown[:40]}")


def left_out(piece: Piece) -> str:
    """Says what kind of statement that only concerns the server or its users this is.

    Returns:
        A kind for `Notes.add`; empty for a statement of another sort.
    """
    cursor = piece.cursor()
    verb = cursor.next().upper
    if verb in ("GRANT", "REVOKE") or (
        verb in ("CREATE", "ALTER", "DROP", "RENAME") and cursor.peek().upper in ("USER", "ROLE")
    ):
        return "{n} statement{s} about users left out"
    if verb == "SET" and cursor.peek().upper in ("PASSWORD", "ROLE"):
        return "{n} statement{s} about users left out"
    if verb == "SET" and cursor.take("DEFAULT", "ROLE"):
        return "{n} statement{s} about users left out"
    server = {"FLUSH", "INSTALL", "UNINSTALL", "CHANGE", "RESET", "PURGE", "START", "STOP", "SHUTDOWN", "KILL"}
    if verb in server and not (verb == "START" and cursor.take("TRANSACTION")):
        return "{n} statement{s} about the server left out"
    if verb in ("CREATE", "ALTER", "DROP") and cursor.peek().upper in ("TABLESPACE", "LOGFILE", "SERVER", "INSTANCE"):
        return "{n} statement{s} about the server left out"
    return ""


def _beginning(piece: Piece) -> str:
    return " ".join(piece.text.split())[:40]
