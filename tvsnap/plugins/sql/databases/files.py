"""Files that are loaded into an image's database system when it is built."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tvsnap.model.errors import UsageError
from tvsnap.plugins.sql.inside.loading import PACKINGS

Format = Literal["sql", "csv", "sqlite"]

MYSQL = "mysql"
DIALECTS = (MYSQL, "mariadb", "postgres", "sqlite")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_$-]{0,62}")
_NAME_RULE = "at most 63 letters, digits and _ $ -, not $ or - first"
_FORMATS: dict[str, Format] = {
    ".sql": "sql",
    ".csv": "csv",
    ".tsv": "csv",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
    ".dump": "sql",
    ".backup": "sql",
}
_DIALECTS = {".dump": "postgres", ".backup": "postgres"}
"""Endings that are usual for what `pg_dump` writes, mostly archives."""
_ENDINGS = f"{', '.join(_FORMATS)}, each also with .gz, .bz2 or .xz"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file to be loaded.

    Attributes:
        path: on this machine; compressed if its name ends in .gz, .bz2 or .xz.
        format: a script of SQL or an archive of pg_dump, a table as CSV, or a SQLite database.
        dialect: the dialect of a script: "mysql", or the database system's own; None to detect it.
        table: the table that a CSV becomes; "" otherwise.
    """

    path: Path
    format: Format
    dialect: str | None = None
    table: str = ""

    @property
    def stem(self) -> str:
        """The file's name without the suffixes of its format."""
        return Path(unpacked_name(self.path)).stem

    @property
    def database(self) -> str:
        """The database's name if it is derived from the file's."""
        return re.sub(r"[^A-Za-z0-9_$-]+", "_", self.stem).lstrip("$-")[:63] or "data"


@dataclass(frozen=True, slots=True)
class Database:
    """Files that are loaded one after the other.

    Attributes:
        name: the database's name; "" for those that a script names itself, or else for the file's own name.
        files: at least one.
    """

    name: str
    files: tuple[DataFile, ...]

    @property
    def title(self) -> str:
        """Its name for people before it is loaded."""
        return self.name or ", ".join(file.path.name for file in self.files)


def unpacked_name(path: Path) -> str:
    """Returns a file's name without the suffix of its compression."""
    return path.stem if path.suffix[1:] in PACKINGS else path.name


def data_file(path: Path, dialect: str | None = None, table: str | None = None) -> DataFile:
    """Returns a file to be loaded, with the format that its name shows; raises UsageError with the reason.

    The file itself is not read.
    """
    suffix = Path(unpacked_name(path)).suffix.lower()
    format = _FORMATS.get(suffix)
    if format is None:
        raise UsageError(f"{path}: what it holds is told by how its name ends: {_ENDINGS}")
    if dialect is not None and format != "sql":
        raise UsageError(f"{path}: a dialect is for scripts of SQL")
    if table is not None and format != "csv":
        raise UsageError(f"{path}: a table is for CSV files; what else there is names its own")
    file = DataFile(path, format, _DIALECTS.get(suffix) if dialect is None else dialect)
    return replace(file, table=table or file.stem) if format == "csv" else file


def check_database_name(name: str) -> str:
    """Returns the name, or raises UsageError if a database cannot have it."""
    if not _NAME.fullmatch(name):
        raise UsageError(f'"{name}" cannot be the name of a database: {_NAME_RULE}')
    return name


def given(files: Iterable[tuple[str | None, Path]], dialect: str | None) -> tuple[Database, ...]:
    """Returns the databases that a command line names; successive files with the same name go into one database.

    Raises:
        UsageError: with the option, and what is wrong.
    """
    if dialect is not None and dialect not in DIALECTS:
        raise UsageError(f'--dialect: must be {", ".join(DIALECTS)}, not "{dialect}"')
    databases: list[Database] = []
    for name, path in files:
        try:
            name = "" if name is None else check_database_name(name)
            file = data_file(path)
        except UsageError as error:
            raise UsageError(f"--database: {error}") from None
        file = replace(file, dialect=dialect or file.dialect) if file.format == "sql" else file
        if name and databases and databases[-1].name == name:
            databases[-1] = Database(name, (*databases[-1].files, file))
        else:
            databases.append(Database(name, (file,)))
    return tuple(databases)
