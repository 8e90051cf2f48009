"""Reads a dump of MySQL or MariaDB, and writes scripts that the database system of an image can load."""

from __future__ import annotations

import bz2
import gzip
import lzma
import mmap
import re
import shutil
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvsnap.plugins.sql.databases.dumps.mariadb import write_for_mariadb
from tvsnap.plugins.sql.databases.dumps.splitting import DumpError

if TYPE_CHECKING:
    from pathlib import Path

    from tvsnap.plugins.sql.inside.lexemes import SystemName

_MYSQL = re.compile(
    rb"^-- (?:MySQL|MariaDB) dump|^-- phpMyAdmin SQL Dump|/\*M?!\d{5,6}\b|^SET NAMES utf8|\)\s*ENGINE\s*=\s*\w+",
    re.MULTILINE | re.IGNORECASE,
)
_GZIP = b"\x1f\x8b"
_PACKED: dict[bytes, Any] = {_GZIP: gzip, b"BZh": bz2, b"\xfd7zXZ\0": lzma}
"""Modules that unpack files, by how these begin."""


@dataclass(frozen=True, slots=True)
class Read:
    """The scripts made of a dump.

    Attributes:
        databases: those that the dump names, in its order and as the system names them; none if it has only tables.
        scripts: files of SQL, each with the database to run it in. That is empty if the script names its own, which is
            always so for MariaDB, and if the dump names none: then any database will do.
        notes: omissions and changes, one line per kind.
    """

    databases: tuple[str, ...]
    scripts: tuple[tuple[str, Path], ...]
    notes: tuple[str, ...] = ()


def looks_like_mysql(head: bytes) -> bool:
    """Returns whether a file of SQL was written by MySQL or for it.

    `head` is its beginning, possibly compressed by gzip.
    """
    if head.startswith(_GZIP):
        try:
            head = zlib.decompressobj(31).decompress(head)
        except zlib.error:
            return False
    return _MYSQL.search(head) is not None


def read_mysql(source: Path, target: Path, system: SystemName) -> Read:
    """Reads a dump, of which memory contains one statement at a time; writes scripts to the directory `target`.

    MariaDB gets one script, with the lines of the dump. PostgreSQL and SQLite, which cannot change databases within a
    script, get one for each database, in one transaction.

    Raises:
        DumpError: the dump cannot be read, or contains something that cannot be translated.
    """
    target.mkdir(parents=True, exist_ok=True)
    try:
        dump = _contents(source, target)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DumpError(f"{source}: cannot be read: {error}") from None
    try:
        if system == "mariadb":
            script = target / "000.sql"
            return Read(tuple(write_for_mariadb(dump, script)), (("", script),))
        # Imported late: importing sqlglot takes a tenth of a second, and few images need it.
        from tvsnap.plugins.sql.databases.dumps.translating import Translation

        translation = Translation(target, system)
        scripts = translation.run(dump)
        return Read(tuple(name for name, _ in scripts if name), tuple(scripts), translation.notes)
    except DumpError as error:
        raise DumpError(f"{source}: {error}") from None


def _contents(source: Path, target: Path) -> bytes | mmap.mmap:
    with source.open("rb") as file:
        head = file.read(8)
    module = next((module for begin, module in _PACKED.items() if head.startswith(begin)), None)
    if module is not None:
        unpacked = target / "unpacked"
        with module.open(source) as stream, unpacked.open("wb") as copy:
            shutil.copyfileobj(stream, copy, 1 << 20)
        source = unpacked
    with source.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.seek(0, 2) else b""
