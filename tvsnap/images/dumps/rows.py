"""The rows of a MySQL dump in another engine's literals; what need not change is copied as it stands."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tvsnap.images.dumps.notes import Notes
from tvsnap.images.dumps.tables import Column, Table
from tvsnap.images.dumps.target import Target, is_zero_date
from tvsnap.images.dumps.tokens import Cursor, tokens

_GAP = rb"(?:\s|--\s[^\n]*|\#[^\n]*|/\*.*?\*/)*"
_HEAD = re.compile(
    rb"(?is)(?P<verb>INSERT|REPLACE)\s+(?:(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY)\s+)?(?P<ignore>IGNORE\s+)?"
    rb"(?:INTO\s+)?(?P<table>(?:`[^`]*(?:``[^`]*)*`|[\w$.])+)\s*(?P<columns>\([^)]*\))?\s*VALUES?"
    + _GAP
    + rb"(?=\(|ROW)"
)
_VALUE = re.compile(
    rb"""(?isx)\s*(?:
    (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)
    |(?P<null>NULL)
    |(?P<string>(?:_[a-z0-9]+\s*|n)?(?:'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'|"[^"\\]*(?:(?:\\.|"")[^"\\]*)*"))
    |(?P<bytes>(?:_[a-z0-9]+\s*)?(?:0x[0-9a-f]*|x'[0-9a-f]*'))
    |(?P<bits>0b[01]+|b'[01]*')
    |(?P<word>TRUE|FALSE|DEFAULT)
    )\s*(?=[,)])"""
)
_OPEN = re.compile(rb"(?i)(?:ROW\s*)?\(")
_NEXT = re.compile(_GAP + rb"," + _GAP, re.DOTALL)
_END = re.compile(_GAP + rb"\Z", re.DOTALL)
_QUOTE, _CLOSE = b"')"
_ESCAPES = {b"0": b"\0", b"b": b"\b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"Z": b"\x1a", b"%": b"\\%", b"_": b"\\_"}
_ESCAPED = {
    b"'": re.compile(rb"\\(.)|''", re.DOTALL),
    b'"': re.compile(rb'\\(.)|""', re.DOTALL),
}


class Unconvertible(Exception):
    """A statement that brings rows in a way that only MySQL knows; the message says what it is."""


@dataclass(frozen=True, slots=True)
class Inserting:
    """The beginning of a statement that brings rows.

    Attributes:
        columns: as they stand there; empty for all.
        start: where the rows begin.
    """

    verb: str
    database: str
    table: str
    columns: tuple[str, ...]
    start: int


def read_head(statement: bytes) -> Inserting:
    """Reads where an INSERT or REPLACE puts its rows.

    Raises:
        Unconvertible: it is not of the form `INSERT INTO table (columns) VALUES (...)`.
    """
    head = _HEAD.match(statement)
    if not head:
        raise Unconvertible(f"{statement[:40].decode('utf-8', 'replace')}... is not followed by VALUES")
    names = head["table"].decode("utf-8", "surrogateescape")
    database, table = Cursor(names, tokens(names)).qualified_name()
    listed = (head["columns"] or b"").decode("utf-8", "surrogateescape")
    columns = tuple(item.name() for item in Cursor(listed, tokens(listed)).parenthesised().items()) if listed else ()
    verb = "IGNORE" if head["ignore"] else head["verb"].decode().upper()
    return Inserting(verb, database, table, columns, head.end())


class Rows:
    """Writes rows for one database.

    Attributes:
        zero_dates: tables and columns, in lower case, in which a date became NULL.
    """

    def __init__(self, target: Target, notes: Notes) -> None:
        self.zero_dates: set[tuple[str, str]] = set()
        self._target = target
        self._notes = notes

    def insert(self, statement: bytes, head: Inserting, table: Table) -> bytes:
        """Returns the whole statement in the engine's words, without a semicolon.

        Raises:
            Unconvertible: something is neither a literal nor an expression that can be translated.
        """
        target = self._target
        columns: list[Column] = []
        for name in head.columns:
            if not (column := table.column(name)):
                raise Unconvertible(f'INSERT INTO {table.name}: it has no column "{name}"')
            columns.append(column)
        columns = columns or table.columns
        kept = [column for column in columns if not column.generated]
        named = len(kept) < len(columns) or head.columns
        listed = f" ({target.quoted_all(tuple(column.name for column in kept))})" if named else ""
        writer = _Writer(target, self._notes, table, columns, statement)
        values = writer.rows(head.start)
        self.zero_dates |= {(table.name.lower(), name) for name in writer.zero_dates}
        begin, end = target.ignoring(head.verb)
        return f"{begin}{target.quoted(table.name)}{listed} VALUES ".encode() + values + end.encode()


class _Writer:
    """Writes the rows of one statement: runs of it as they stand, and what is new between them."""

    def __init__(self, target: Target, notes: Notes, table: Table, columns: list[Column], statement: bytes) -> None:
        self.zero_dates: set[str] = set()
        self._target = target
        self._notes = notes
        self._table = table
        self._columns = columns
        self._families = [column.type.family for column in columns]
        self._as_is = target.as_is(statement)
        self._statement = statement
        self._found: list[bytes] = []
        self._copied = 0

    def rows(self, position: int) -> bytes:
        """Converts `(...),(...)` from there up to the end of the statement."""
        statement = self._statement
        self._copied = position
        while True:
            if not (opening := _OPEN.match(statement, position)):
                raise self._fails(position)
            if opening.group() != b"(":
                self._replace(position, opening.end(), b"(")
            position = self._row(opening.end())
            if not (comma := _NEXT.match(statement, position)):
                break
            if comma.group().strip() != b",":  # There is a comment, of a kind that others may not know.
                self._replace(position, comma.end(), b",")
            position = comma.end()
        if not _END.match(statement, position):
            raise self._fails(position)
        self._replace(position, position, b"")
        return b"".join(self._found)

    def _replace(self, start: int, end: int, new: bytes) -> None:
        self._found += (self._statement[self._copied : start], new)
        self._copied = end

    def _row(self, position: int) -> int:
        """Converts the values up to the closing parenthesis, and returns where it goes on behind that."""
        statement = self._statement
        first = True
        for index, family in enumerate(self._families):
            start = before = position
            new: bytes | None = None
            if value := _VALUE.match(statement, position):
                kind = value.lastgroup or ""
                start, end = value.span(kind)
                position = value.end()
                # What is most of all is decided here: numbers, and text that can stay as it is.
                if kind == "string" and family == "text" and self._as_is:
                    if statement[start] != _QUOTE or statement.find(b"\\", start, end) >= 0:
                        new = self._value(kind, statement[start:end], index)
                elif kind != "number" or family == "binary":
                    new = self._value(kind, statement[start:end], index)
            else:
                new, end = self._expression(position)
                position = end
            if self._columns[index].generated:  # MariaDB dumps these as well. It goes with one of the commas around it.
                self._replace(*((start, position + 1) if first else (before - 1, end)), b"")
            elif new is not None:
                self._replace(start, end, new)
            first = first and self._columns[index].generated is not None
            position += 1
            if statement[position - 1] == _CLOSE:
                return position
        raise Unconvertible(f"INSERT INTO {self._table.name}: a row has more than {len(self._columns)} values")

    def _fails(self, position: int) -> Unconvertible:
        text = self._statement[position : position + 40].decode("utf-8", "replace").strip()
        return Unconvertible(f'INSERT INTO {self._table.name}: "{text}..." is not understood')

    def _string(self, literal: bytes, index: int) -> bytes | None:
        family = self._families[index]
        if family == "date" and not self._target.zero_dates and is_zero_date(literal[1:-1].decode("latin-1")):
            self._notes.add("{n} impossible date{s} such as 0000-00-00 became NULL")
            self.zero_dates.add(self._columns[index].name.lower())
            return b"NULL"
        if family in ("date", "time", "integer", "decimal", "float") and b"\\" not in literal and literal[:1] == b"'":
            return None
        return self._bytes(unescaped(literal), index)

    def _bytes(self, value: bytes, index: int) -> bytes:
        """A literal that is right for a column."""
        family = self._families[index]
        if family in ("binary", "spatial"):
            return self._target.binary(value)
        if family == "bits":
            return str(int.from_bytes(value, "big")).encode()
        return self._target.text(value)

    def _value(self, kind: str, literal: bytes, index: int) -> bytes | None:
        """A literal as it has to be; None if it can stay."""
        family = self._families[index]
        if kind == "string":
            return self._string(literal, index)
        if kind == "null":
            return self._target.automatic if self._columns[index].auto else None
        if kind == "number":
            return self._target.binary(literal)
        if kind == "word":
            return self._word(literal.upper(), index)
        if kind == "bits":
            number = int(literal.strip(b"bB'").removeprefix(b"0b") or b"0", 2)
            length = max(1, (number.bit_length() + 7) // 8)
        else:
            digits = re.sub(rb"(?i)^(_[a-z0-9]+\s*)?(0x|x')|'$", b"", literal)
            number, length = int(digits or b"0", 16), (len(digits) + 1) // 2
        if family in ("integer", "decimal", "float"):
            return str(number).encode()
        return self._bytes(number.to_bytes(length, "big"), index)

    def _word(self, word: bytes, index: int) -> bytes:
        if word != b"DEFAULT":
            return b"1" if word == b"TRUE" else b"0"
        if self._columns[index].auto:
            return self._target.automatic
        if self._target.dialect == "postgres":
            return word
        column = self._columns[index]
        return (self._target.literal_default(self._table, column) or "NULL").encode()

    def _expression(self, position: int) -> tuple[bytes, int]:
        """Translates a value that is no literal; returns it and where it ended."""
        item = _first_item(self._statement[position:].decode("utf-8", "surrogateescape"))
        translated = self._target.translated(item, self._table.name) if item.strip() else None
        if translated is None:
            raise self._fails(position)
        return translated.encode(), position + len(item.encode("utf-8", "surrogateescape"))


def _first_item(text: str) -> str:
    """What stands before the first comma or closing parenthesis; empty if there is none."""
    depth = 0
    for token in tokens(text):
        depth += (token.upper == "(") - (token.upper == ")")
        if depth < 0 or (depth == 0 and token.upper == ","):
            return text[: token.start]
    return ""


def unescaped(literal: bytes) -> bytes:
    """What a string literal stands for, with or without a character set before it: `_binary 'a\\0'`."""
    quotes = [place for place in (literal.find(b"'"), literal.find(b'"')) if place >= 0]
    body = literal[min(quotes) :]
    quote = body[:1]
    text = body[1:-1]
    if b"\\" not in text and quote not in text:
        return text
    return _ESCAPED[quote].sub(lambda match: _ESCAPES.get(match[1], match[1]) if match[1] else quote, text)
