"""Fills MariaDB's tables from scripts and rows; when an image is built."""

from __future__ import annotations

import subprocess
from typing import Any, Iterable, Iterator, List, Tuple

from ..system import Column, SystemFailed, Table
from .protocol import Connection, Refused
from .server import SETTINGS
from .values import literal, quoted

_KINDS = {
    "integer": "BIGINT",
    "real": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "DATETIME(6)",
    "binary": "LONGBLOB",
}
_TEXT = "LONGTEXT"
_IN_KEYS = {"LONGBLOB": "VARBINARY(255)", _TEXT: "VARCHAR(255)"}
"""Types that a primary key can have, in place of those that it cannot."""

_MOST_DIGITS, _LONGEST_FRACTION = 65, 30
_BATCH = 1 << 20  # characters of one INSERT
PATIENCE = 24 * 3600.0


def load_script(path: str, database: str) -> None:
    """Runs a file of SQL with the command-line client: see `DatabaseSystem.load_script`."""
    command = ["mariadb", f"--defaults-file={SETTINGS}", "--user=root", "--binary-mode", "--max-allowed-packet=64M"]
    options = ["--default-character-set=utf8mb4", *([f"--database={database}"] if database else [])]
    with open(path, "rb") as script:
        done = subprocess.run(
            command + options, stdin=script, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
        )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise SystemFailed(said[said.rfind("\nERROR") + 1 :][-2000:])  # before that, it repeats the statement


def load_table(connection: Connection, database: str, table: Table) -> None:
    """Makes a table and fills it: see `DatabaseSystem.load_table`."""
    name = f"{quoted(database)}.{quoted(table.name)}"
    made = not connection.rows(
        "SELECT 1 FROM information_schema.TABLES WHERE table_schema = "
        f"{literal(database.lower())} AND table_name = {literal(table.name.lower())}"
    )
    try:
        if made:
            parts = [f"{quoted(one.name)} {_type(one, table)}" for one in table.columns]
            if table.primary_key:
                parts.append(f"PRIMARY KEY ({', '.join(map(quoted, table.primary_key))})")
            connection.rows(f"CREATE TABLE {name} ({', '.join(parts)}) CHARACTER SET utf8mb4")
        columns = ", ".join(quoted(one.name) for one in table.columns)
        for first, rows in _batches(table.rows):
            _insert(connection, f"INSERT INTO {name} ({columns}) VALUES ", first, rows)
        if made:
            _narrow(connection, name, table)
    except Refused as error:
        raise SystemFailed(f"{table.name}: {error}") from error


def _type(column: Column, table: Table) -> str:
    """Returns a column's type as it is filled: decimals as text, until it is known how long they are."""
    kind = _KINDS.get(column.kind, _TEXT)
    if column.name in table.primary_key:
        kind = _IN_KEYS.get(kind, kind)
    return kind + ("" if column.nullable else " NOT NULL")


def _batches(rows: Iterable[Any]) -> Iterator[Tuple[int, List[str]]]:
    """Yields rows as literals, so many at once, each time with the number of the first."""
    first, size = 1, 0
    batch: List[str] = []
    for number, row in enumerate(rows, 1):
        text = f"({', '.join(map(_literal, row))})"
        if batch and size + len(text) > _BATCH:
            yield first, batch
            first, size, batch = number, 0, []
        batch.append(text)
        size += len(text)
    if batch:
        yield first, batch


def _insert(connection: Connection, statement: str, first: int, rows: List[str]) -> None:
    try:
        connection.rows(statement + ", ".join(rows), PATIENCE)
    except Refused as refused:
        number, error = next(_refusals(connection, statement, first, rows), (first, refused))
        raise SystemFailed(f"row {number}: {error}") from error


def _refusals(connection: Connection, statement: str, first: int, rows: List[str]) -> Iterator[Tuple[int, Refused]]:
    """Inserts rows one by one, and yields those that are refused."""
    for number, row in enumerate(rows, first):
        try:
            connection.rows(statement + row)
        except Refused as error:  # noqa: PERF203 - each row by itself
            yield number, error


def _narrow(connection: Connection, name: str, table: Table) -> None:
    """Gives decimals the digits that they need, and timestamps no fractions of a second where none has any."""
    for column in table.columns:
        kind = _narrower(connection, name, column)
        if kind:
            kind += "" if column.nullable else " NOT NULL"
            connection.rows(f"ALTER TABLE {name} MODIFY {quoted(column.name)} {kind}", PATIENCE)


def _narrower(connection: Connection, table: str, column: Column) -> str:
    """Returns the type that a filled column can have without a loss, empty if that is the one it has."""
    name = quoted(column.name)
    if column.kind == "timestamp":
        return "" if connection.rows(f"SELECT 1 FROM {table} WHERE MICROSECOND({name}) <> 0 LIMIT 1") else "DATETIME"
    if column.kind != "decimal":
        return ""
    whole = f"SUBSTRING_INDEX(TRIM(LEADING '-' FROM {name}), '.', 1)"
    (row,) = connection.rows(
        f"SELECT MIN({name} REGEXP '^-?[0-9]+([.][0-9]+)?$'), MAX(CHAR_LENGTH({whole})), "
        f"MAX(CHAR_LENGTH(TRIM(LEADING '-' FROM {name})) - CHAR_LENGTH({whole}) - 1) FROM {table}",
        PATIENCE,
    )
    numbers, digits, fraction = (int(value or 0) for value in row)
    fraction = max(fraction, 0)
    fits = numbers and digits + fraction <= _MOST_DIGITS and fraction <= _LONGEST_FRACTION
    return f"DECIMAL({digits + fraction}, {fraction})" if fits else ""


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, (int, float)):
        return repr(int(value) if isinstance(value, bool) else value)
    return literal(str(value))
