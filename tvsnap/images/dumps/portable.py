"""A MySQL dump for an engine of another kind: a script a database, with its tables, then their rows, then the rest."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from tvsnap.images.dumps.errors import DumpError
from tvsnap.images.dumps.notes import Notes
from tvsnap.images.dumps.rows import Rows, Unconvertible, read_head
from tvsnap.images.dumps.schema import SYSTEM, Database, Piece, pieces, read_schema
from tvsnap.images.dumps.target import Target
from tvsnap.images.dumps.translating import Untranslatable, translate


def convert(
    source: Path, directory: Path, notes: Notes, make: Callable[[Database, Notes], Target]
) -> list[tuple[str, Path]]:
    """Converts a dump; the rows are read in a second pass over it, so that the tables are known in full.

    Args:
        directory: for the scripts.
        make: what writes a database in the engine's words.

    Returns:
        The databases, as the engine names them, and their scripts; in the order of the dump.

    Raises:
        DumpError: the dump cannot be read, or holds rows that cannot be converted.
    """
    schema = read_schema(source, notes)
    found = [database for name, database in schema.databases.items() if name or database.tables or database.views]
    scripts = {
        database.name: _Script(directory / f"{number:03}.sql", make(database, notes), notes)
        for number, database in enumerate(found)
    }
    for script in scripts.values():
        with script:
            script.begin(source)
    current = ""
    try:
        for piece in pieces(source):
            if piece.database.lower() in SYSTEM or not (piece.brings_rows or piece.changes_rows):
                continue
            current = _copy(source, piece, scripts, current)
    finally:
        if current in scripts:
            scripts[current].close()
    for script in scripts.values():
        with script:
            script.end()
    return [(script.target.folded(name), script.path) for name, script in scripts.items()]


def _copy(source: Path, piece: Piece, scripts: dict[str, _Script], current: str) -> str:
    """Writes a statement to its database's script, which is then the one that is open."""
    try:
        head = read_head(piece.statement.text) if piece.brings_rows else None
        name = head.database if head and head.database else piece.database
        if not (script := scripts.get(name)):
            raise Unconvertible(f'there is no database "{name}" in the dump')
        if name != current and current in scripts:
            scripts[current].close()
        if not head:
            script.write(translate(piece.text, script.target.dialect).encode())
        elif not (table := script.database.table(head.table)):
            raise Unconvertible(f'there is no table "{head.table}" in the dump')
        elif piece.number > table.statement:
            script.write(script.rows.insert(piece.statement.text, head, table))
    except (Unconvertible, Untranslatable) as error:
        raise DumpError(f"{source}: line {piece.statement.line}: {error}; only mariadb can load this dump") from None
    return name


class _Script:
    """A file that is open when something is written, until it is closed; many databases need not be many files."""

    def __init__(self, path: Path, target: Target, notes: Notes) -> None:
        self.path = path
        self.target = target
        self.database = target.database
        self.rows = Rows(target, notes)
        self._file: IO[bytes] | None = None
        path.write_bytes(b"")

    def __enter__(self) -> _Script:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, source: Path) -> None:
        """Writes the tables."""
        try:
            self._all(self.target.before())
        except sqlite3.Error as error:
            raise DumpError(f"{source}: a table of {self.database.name} cannot be made: {error}") from None

    def end(self) -> None:
        """Writes what comes after the rows."""
        self._all(self.target.after(self.rows.zero_dates))

    def _all(self, statements: Iterable[str]) -> None:
        for statement in statements:
            self.write(statement.encode("utf-8", "surrogateescape"))

    def write(self, statement: bytes) -> None:
        """Appends a statement."""
        if self._file is None:
            self._file = self.path.open("ab")
        self._file.write(statement + b";\n")

    def close(self) -> None:
        """Closes the file; what is written later is appended."""
        if self._file is not None:
            self._file.close()
            self._file = None
