"""Converts a dump of MySQL 8, or of MariaDB, so that an engine of an image can load it."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from tvsnap.images.dumps import mariadb, portable
from tvsnap.images.dumps.notes import Notes
from tvsnap.images.dumps.postgres import Postgres
from tvsnap.images.dumps.sqlite import SQLite
from tvsnap.images.dumps.translating import Dialect

_MYSQL = re.compile(
    rb"^-- (?:MySQL|MariaDB) dump|^-- phpMyAdmin SQL Dump|/\*M?!\d{5,6}\b|^SET NAMES utf8|\)\s*ENGINE\s*=\s*\w+"
    rb"|^\s*CREATE (?:TABLE|DATABASE|SCHEMA)\s+(?:IF NOT EXISTS\s+)?`",
    re.MULTILINE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Converted:
    """What a dump became.

    Attributes:
        databases: those that the dump names, in its order and as the engine names them; none for mere tables.
        scripts: files of SQL, each with the database to run it in. That is empty where the script names its own, which
            is always so for MariaDB, and where the dump names none: any database will do then.
        notes: what was left out or changed, one line a kind.
    """

    databases: tuple[str, ...]
    scripts: tuple[tuple[str, Path], ...]
    notes: tuple[str, ...]


def looks_like_mysql(head: bytes) -> bool:
    """Whether a file of SQL was written by MySQL or for it.

    Args:
        head: its beginning, some kilobytes; may be compressed by gzip.
    """
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(31).decompress(head)
        except zlib.error:
            return False
    return _MYSQL.search(head) is not None


def convert_mysql(source: Path, target: Path, dialect: Dialect) -> Converted:
    """Converts a dump; memory holds one statement of it at a time.

    MariaDB gets one script, in which little is changed. PostgreSQL and SQLite, which cannot change databases within a
    script, get one for each database, in one transaction.

    Args:
        source: a file of SQL, or the same through gzip.
        target: a directory for the scripts; made if need be.

    Raises:
        DumpError: the dump cannot be read, or holds what cannot be converted without loss of rows.
    """
    notes = Notes()
    target.mkdir(parents=True, exist_ok=True)
    if dialect == "mariadb":
        script = target / "000.sql"
        return Converted(tuple(mariadb.convert(source, script, notes)), (("", script),), notes.lines())
    scripts = portable.convert(source, target, notes, Postgres if dialect == "postgres" else SQLite)
    return Converted(tuple(name for name, _ in scripts if name), tuple(scripts), notes.lines())
