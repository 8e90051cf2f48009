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
    "text": "LONGTEXT",  # also decimals, until it is known how long they are
}
_IN_KEYS = {"LONGBLOB": "VARBINARY(255)", "LONGTEXT": "VARCHAR(255)"}
"""Replacements for types that a primary key cannot have."""

_MOST_DIGITS, _LONGEST_FRACTION = 65, 30
_BATCH = 1 << 20  # characters of one INSERT
PATIENCE = 24 * 3600.0


def load_script(path: str, database: str) -> None:
    """Runs a file of SQL with the command-line client: see `DatabaseSystem.load_script`."""
    command = ["mariadb", f"--defaults-file={SETTINGS}", "--user=root", "--binary-mode", "--max-allowed-packet=64M"]
    options = ["--default-character-set=utf8mb4", *([f"--database={database}"] if database else [])]
    with open(path, "rb") as script:
        process = subprocess.run(
            command + options, stdin=script, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
        )
    if process.returncode:
        message = process.stderr.decode(errors="replace").strip()
        raise SystemFailed(message[message.rfind("\nERROR") + 1 :][-2000:])  # before that, it repeats the statement


def load_table(connection: Connection, database: str, table: Table) -> None:
    """Creates a table and fills it: see `DatabaseSystem.load_table`."""
    name = f"{quoted(database)}.{quoted(table.name)}"
    is_new = not connection.rows(
        "SELECT 1 FROM information_schema.TABLES WHERE table_schema = "
        f"{literal(database.lower())} AND table_name = {literal(table.name.lower())}"
    )
    try:
        if is_new:
            connection.rows(f"CREATE TABLE {name} {table.definition(quoted, _KINDS, _IN_KEYS)} CHARACTER SET utf8mb4")
        for first, rows in _batches(table.rows):
            _insert(connection, f"INSERT INTO {name} ({table.names(quoted)}) VALUES ", first, rows)
        for column in table.columns if is_new else ():
            kind = _narrower(connection, name, column)
            if kind:
                kind += "" if column.nullable else " NOT NULL"
                connection.rows(f"ALTER TABLE {name} MODIFY {quoted(column.name)} {kind}", PATIENCE)
    except Refused as error:
        raise SystemFailed(f"{table.name}: {error}") from error


def _batches(rows: Iterable[Any]) -> Iterator[Tuple[int, List[str]]]:
    """Yields rows as literals, in batches, each with the number of the first."""
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
        if len(rows) == 1:
            raise SystemFailed(f"row {first}: {refused}") from refused
        for number, row in enumerate(rows, first):  # to find out which one it was
            _insert(connection, statement, number, [row])
        raise SystemFailed(f"row {first}: {refused}") from refused


def _narrower(connection: Connection, table: str, column: Column) -> str:
    """Returns the type that a filled column can have without a loss, empty if it has that type already.

    Decimals get the digits that they need, and timestamps no fractions of a second if none has any.
    """
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
