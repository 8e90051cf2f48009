"""Reads CSV and SQLite files as tables that any system can load: first the kinds of columns, then the rows.

Files are read twice, row by row. Kinds are those of `system.Column`; a value that fits none of the narrower ones makes
its column text. Errors name the line or the table, not the file.
"""

from __future__ import annotations

import contextlib
import csv
import os
import re
import sqlite3
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, Callable, Dict, Generator, Iterator, List, Optional, Sequence, Tuple
from urllib.parse import quote as quote_url

from .sqlite.schema import Relation, relations
from .system import Column, SystemFailed, Table, quoted

# -- CSV --------------------------------------------------------------------------------------------------------------

DELIMITERS = ",;\t|"
SAMPLE = 200
"""Lines from which the delimiter is detected."""
LONGEST_FIELD = 1 << 30
REMEMBERED = 4096
"""Dates and times whose validity is cached, because they occur again and again."""
EXACT_DIGITS = 15
"""Decimal digits that a double always represents exactly."""

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_REAL = re.compile(r"-?(?:(0|[1-9][0-9]*)?\.([0-9]+)|(0|[1-9][0-9]*))(?:[eE][+-]?[0-9]{1,2})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2})?)(\.[0-9]{1,6})?")
_UNDECODED = re.compile("[\udc80-\udcff]")
_ENCODINGS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_BOOLEANS = {"true": 1, "false": 0}


def read_csv(path: str, name: str) -> Table:
    """Reads a CSV file with a header line as a table with a name.

    The delimiter is detected: a comma, semicolon, tab or vertical bar. Text is UTF-8, or UTF-16 with a byte order mark.
    An empty field is NULL, quoted or not; a blank line is skipped. Columns without a name are called `column_N`, and
    later ones of the same name get a number. Kinds are integer (of 64 bits, without leading zeros), real (of up to 15
    digits), boolean (`true` and `false`, given as 1 and 0), date and timestamp (as ISO 8601, without a zone), and text.

    Raises:
        SystemFailed: with the line and the reason.
    """
    source = _CSV(path)
    fitting: List[Optional[List[str]]] = [None] * len(source.names)
    count = 0
    for record in source.records():
        count += 1
        for at, field in enumerate(record):
            if field and fitting[at] != []:
                fitting[at] = [kind for kind in fitting[at] or _KINDS if _KINDS[kind](field)]
    kinds = [each[0] if each else "text" for each in fitting]
    named = tuple(map(Column, source.names, kinds))
    return Table(name, named, _Rows(lambda: _csv_rows(source, kinds), count))


@dataclass
class _Rows:
    """Rows that can be read more than once, and their number."""

    iterate: Callable[[], Iterator[Sequence[Any]]]
    count: int

    def __iter__(self) -> Iterator[Sequence[Any]]:
        return self.iterate()

    def __len__(self) -> int:
        return self.count


def _csv_rows(source: _CSV, kinds: List[str]) -> Iterator[Sequence[Any]]:
    booleans = [index for index, kind in enumerate(kinds) if kind == "boolean"]
    for record in source.records():
        row: List[Any] = [field or None for field in record]
        for index in booleans:
            if row[index] is not None:
                row[index] = _BOOLEANS[row[index].lower()]
        yield row


class _CSV:
    """A CSV file: its format, the names of its columns, and its records."""

    def __init__(self, path: str) -> None:
        self._path = path
        with open(path, "rb") as stream:
            start = stream.read(4)
        self._encoding = next((name for mark, name in _ENCODINGS if start.startswith(mark)), "utf-8")
        csv.field_size_limit(LONGEST_FIELD)
        self._delimiter = self._sniff()
        with contextlib.closing(self._read()) as records:
            header = next(records, None)
        if header is None:
            raise SystemFailed("it is empty; its first line is to name the columns")
        self.names = _names(header[1])

    def records(self) -> Iterator[List[str]]:
        for line, record in islice(self._read(), 1, None):
            if len(record) != len(self.names):
                raise SystemFailed(f"line {line}: {_fields(record)} where the header has {len(self.names)}")
            yield record

    def _read(self) -> Generator[Tuple[int, List[str]], None, None]:
        """Yields all records, including the header, with the line in which each ends."""
        with contextlib.closing(self._lines()) as lines:
            reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
            try:
                for record in reader:
                    if record:
                        yield reader.line_num, record
            except csv.Error as error:
                raise SystemFailed(f"line {reader.line_num}: {error}") from None

    def _lines(self) -> Generator[str, None, None]:
        errors = "strict" if self._encoding == "utf-16" else "surrogateescape"
        with open(self._path, encoding=self._encoding, errors=errors, newline="") as stream:
            try:
                for number, line in enumerate(stream, 1):
                    if "\0" in line:
                        raise SystemFailed(f"line {number}: it holds a NUL character, which is no text")
                    wrong = None if line.isascii() else _UNDECODED.search(line)
                    if wrong:
                        byte = ord(wrong.group()) - 0xDC00
                        raise SystemFailed(
                            f"line {number}: byte 0x{byte:02x} is not UTF-8; convert it, as with `iconv -t UTF-8`"
                        )
                    yield line
            except UnicodeDecodeError as error:
                raise SystemFailed(f"it is not {error.encoding}: {error.reason}") from None

    def _sniff(self) -> str:
        """Returns the delimiter that splits the first lines equally, or else the header best."""
        with contextlib.closing(self._lines()) as lines:
            sample = list(islice(lines, SAMPLE))
        best = (False, 1, ",")
        for delimiter in DELIMITERS:
            widths = [len(record) for record in csv.reader(sample, delimiter=delimiter) if record]
            if len(sample) == SAMPLE:  # the last record may be cut
                widths = widths[:1] + widths[1:-1]
            if widths and widths[0] > 1:
                best = max(best, (len(set(widths)) == 1, widths[0], delimiter), key=lambda rating: rating[:2])
        return best[2]


def _fields(record: List[str]) -> str:
    return f"{len(record)} field{'' if len(record) == 1 else 's'}"


def _names(header: List[str]) -> List[str]:
    """Returns distinct names of columns, ignoring case."""
    names: List[str] = []
    used = set()
    for number, field in enumerate(header, 1):
        wanted = name = field.strip() or f"column_{number}"
        count = 1
        while name.lower() in used:
            count += 1
            name = f"{wanted}_{count}"
        used.add(name.lower())
        names.append(name)
    return names


def _is_integer(field: str) -> bool:
    return (
        _INTEGER.fullmatch(field) is not None and field != "-0" and (len(field) < 19 or -(2**63) <= int(field) < 2**63)
    )


def _is_real(field: str) -> bool:
    match = _REAL.fullmatch(field)
    return match is not None and sum(map(len, filter(None, match.groups()))) <= EXACT_DIGITS


@lru_cache(REMEMBERED)
def _is_date(field: str) -> bool:
    return _DATE.fullmatch(field) is not None and _exists(date.fromisoformat, field)


@lru_cache(REMEMBERED)
def _is_timestamp(field: str) -> bool:
    match = _TIMESTAMP.fullmatch(field)
    return _exists(datetime.fromisoformat, match.group(1)) if match else _is_date(field)


def _exists(parse: Callable[[str], Any], field: str) -> bool:
    try:
        parse(field)
    except ValueError:
        return False
    return True


_KINDS: Dict[str, Callable[[str], bool]] = {
    "integer": _is_integer,
    "real": _is_real,
    "boolean": lambda field: field.lower() in _BOOLEANS,
    "date": _is_date,
    "timestamp": _is_timestamp,
}
"""From narrow to wide; everything else is text."""


# -- SQLite -----------------------------------------------------------------------------------------------------------

_FAMILIES = {
    "boolean": ("BOOL",),
    "integer": ("INT",),
    "text": ("CHAR", "CLOB", "TEXT"),
    "binary": ("BLOB",),
    "real": ("REAL", "FLOA", "DOUB", "NUMERIC", "DECIMAL"),
    "timestamp": ("DATETIME", "TIMESTAMP"),
    "date": ("DATE",),
}
"""Kinds by parts of a declared type, of which the first match counts: SQLite's own rule, and names that people use."""
_FITS = {
    "boolean": "{0} IN (0, 1)",
    "real": f"typeof({{0}}) = 'real' OR {{0}} BETWEEN {-(2**53)} AND {2**53}",
    "date": "is_date({0})",
    "timestamp": "is_timestamp({0})",
}
"""A condition that values of a kind meet."""


def read_sqlite(path: str) -> List[Table]:
    """Reads the tables of a SQLite file, in the order of their names.

    A column has the kind of its declared type if all of its values fit that, else the kind of its values, else text. A
    primary key that has NULLs is dropped. Foreign keys, indexes, views and virtual tables are left out.

    Raises:
        SystemFailed: it is not a sound database, with the reason.
    """
    try:
        with contextlib.closing(_open(path)) as connection:
            verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if verdict != "ok":
                raise SystemFailed(f"it is not a sound SQLite database: {verdict}")
            named = relations(lambda query: connection.execute(query).fetchall())
            return [_table(path, connection, relation) for relation in named if relation.kind == "table"]
    except sqlite3.Error as error:
        raise SystemFailed(f"it is not a sound SQLite database: {error}") from None


def merge_journal(path: str) -> None:
    """Merges a journal or a write-ahead log beside a SQLite file into the file, so that it has all that was committed.

    Raises:
        SystemFailed: they do not belong together, with the reason.
    """
    if not any(os.path.exists(path + suffix) for suffix in ("-wal", "-journal")):
        return
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except sqlite3.Error as error:
        raise SystemFailed(f"it is not a sound SQLite database, with its journal: {error}") from None


def _open(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote_url(path)}?mode=ro&immutable=1", uri=True)
    connection.create_function("is_date", 1, _is_date)
    connection.create_function("is_timestamp", 1, _is_timestamp)
    return connection


def _table(path: str, connection: sqlite3.Connection, relation: Relation) -> Table:
    name = quoted(relation.name)
    info = connection.execute(f"PRAGMA table_xinfo({name})").fetchall()
    primary = tuple(column for place, column in sorted((row[5], row[1]) for row in info) if place)
    if any(_count(connection, name, f"{quoted(column)} IS NULL") for column in primary):
        info = [(*row[:3], row[3] and not row[5], None, 0, 0) for row in info]
        primary = ()
    columns = [
        Column(column, _kind(connection, name, quoted(column), declared), nullable=not not_null and not place)
        for _, column, declared, not_null, _, place, _ in info
    ]
    conversions = [_CONVERSIONS.get(column.kind) for column in columns]
    query = f"SELECT {', '.join(quoted(column.name) for column in columns)} FROM {name}"
    rows = _Rows(lambda: _sqlite_rows(path, relation.name, query, conversions), _count(connection, name, "1"))
    return Table(relation.name, tuple(columns), rows, primary)


def _sqlite_rows(
    path: str, name: str, query: str, conversions: Sequence[Optional[Callable[[Any], Any]]]
) -> Iterator[Sequence[Any]]:
    with contextlib.closing(_open(path)) as connection:
        try:
            for row in connection.execute(query):
                yield [
                    value if value is None or conversion is None else conversion(value)
                    for value, conversion in zip(row, conversions)  # noqa: B905 (as above)
                ]
        except sqlite3.Error as error:
            raise SystemFailed(f"table {name}: {error}") from None


def _kind(connection: sqlite3.Connection, table: str, column: str, declared: str) -> str:
    family = next((kind for kind, parts in _FAMILIES.items() if any(map(declared.upper().count, parts))), "text")
    stored = {row[0] for row in connection.execute(f"SELECT DISTINCT typeof({column}) FROM {table}")} - {"null"}
    if not stored:
        return family
    if stored == {"blob"}:
        return "binary"
    if stored == {"integer"}:
        wanted = family if family in ("boolean", "real") else "integer"
    elif stored == {"text"}:
        wanted = family if family in ("date", "timestamp") else "text"
    else:
        wanted = "real" if stored <= {"integer", "real"} else "text"
    if wanted in _FITS and _count(connection, table, f"{column} IS NOT NULL AND NOT ({_FITS[wanted].format(column)})"):
        return "integer" if stored == {"integer"} else "text"
    return wanted


def _count(connection: sqlite3.Connection, table: str, condition: str) -> int:
    number: int = connection.execute(f"SELECT count(*) FROM {table} WHERE {condition}").fetchone()[0]
    return number


def _as_text(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.hex().upper()


_CONVERSIONS: Dict[str, Callable[[Any], Any]] = {"real": float, "text": _as_text}
