"""Loads an image's databases when it is built, by its own database system in its own tree."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.loaders import Data, Loaded
from tvsnap.images.rootfs import file_digest, read_text, remove_entry, write_file
from tvsnap.model.errors import UsageError
from tvsnap.plugins.sql.databases import dumps
from tvsnap.plugins.sql.databases.files import MYSQL, Database, DataFile, Format, given
from tvsnap.plugins.sql.inside.lexemes import SystemName
from tvsnap.plugins.sql.inside.loading import LOADED, PACKINGS
from tvsnap.plugins.sql.inside.system import CONFIGURATION
from tvsnap.plugins.sql.program import sql_program

STAGE = "/.tvsnap-load"
"""Inside, while loading."""

_PROGRAM = f"{STAGE}/sql.pyz"
_PLAN = f"{STAGE}/plan.json"
_LOADED = f"{STAGE}/{LOADED}"
_HEAD = 1 << 16
"""Bytes of a script from which its dialect is detected."""

_CHOICES = {
    "mariadb": re.compile(rb"\s*(/\*!\d*\s*)?(use[\s`]|create\s+(or\s+replace\s+)?(database|schema)\b)", re.IGNORECASE),
    "postgres": re.compile(rb"\s*\\c(onnect)?\s"),
}
"""Beginnings of lines by which a script in the database system's own dialect chooses its database itself."""


@dataclass(frozen=True, slots=True)
class _Load:
    """One file of the plan that the database system's loader reads.

    Attributes:
        database: to load it into; "" if it names its own.
        path: on this machine.
        format, table: see `DataFile`.
        first: the first database that it fills, as far as that is known.
        title: the name of its copy; "" for its own name.
    """

    database: str
    path: Path
    format: Format
    table: str = ""
    first: str = ""
    title: str = ""


class DatabaseLoader:
    """Loads the databases of images for one database system; see `tvsnap.images.loaders.ImageLoader`."""

    def __init__(self, system: SystemName) -> None:
        self._system = system

    @property
    def keys(self) -> Mapping[str, Any]:
        from tvsnap.plugins.sql.databases.description import KEYS

        return KEYS

    def check(self, data: Data) -> None:
        for file in (file for entry in _databases(data) for file in entry.files):
            if file.dialect not in (None, MYSQL, self._system):
                raise UsageError(
                    f"databases: {file.path.name} is in the dialect {file.dialect}; {self._system} takes its own, and "
                    f"{MYSQL}'s as far as sqlglot translates them"
                )

    def given(self, files: Sequence[tuple[str | None, Path]], dialect: str | None, data: Data) -> Data:
        return {**data, "databases": (*_databases(data), *given(files, dialect))}

    def title(self, data: Data) -> str:
        return f"databases: {', '.join(entry.title for entry in _databases(data)) or 'none'}"

    def signature(self, data: Data) -> Mapping[str, object]:
        files = [
            [
                *(entry.name, file.path.name, file_digest(file.path.resolve()), file.format, file.dialect, file.table),
                *([suffix, file_digest(path)] for suffix, path in _journals(file.path, file.format)),
            ]
            for entry in _databases(data)
            for file in entry.files
        ]
        signature: dict[str, object] = {
            "files": files,
            "first": data.get("database"),
            "program": hashlib.sha256(sql_program()).hexdigest(),
        }
        if any(
            file.format == "sql" and file.dialect != self._system for entry in _databases(data) for file in entry.files
        ):
            sources = sorted(Path(dumps.__file__).parent.glob("*.py"))
            signature["reader"] = [file_digest(path) for path in sources]
        return {"databases": signature}

    def load(
        self, data: Data, root: Path, work: Path, shell: Callable[[str], None], note: Callable[[str], None]
    ) -> Loaded:
        """See `ImageLoader.load`: creates the database system's data directory, and fills it.

        The variables make the database system's client in the terminal begin in the session's database.
        """
        with _swept(root):
            loads = [
                load
                for entry in _databases(data)
                for file in entry.files
                for load in _loads(self._system, entry, file, work, note)
            ]
            plan = []
            for index, load in enumerate(loads):
                inside = f"{STAGE}/{index}/{load.title or load.path.name}"
                parts = [("", load.path), *_journals(load.path, load.format)]
                for suffix, path in parts:
                    with path.open("rb") as stream:
                        write_file(root, inside + suffix, stream)
                file_entry = {"path": inside, "format": load.format, **({"table": load.table} if load.table else {})}
                plan.append({"name": load.database, "files": [file_entry]})
            chosen = data.get("database") or next((load.database or load.first for load in loads), "") or None
            write_file(root, _PLAN, json.dumps({"database": chosen, "databases": plan}).encode())
            write_file(root, _PROGRAM, sql_program())
            # The shell stays the first process, for orphans that nobody else waits for.
            shell(
                'command -v python3 > /dev/null || { echo "databases need python3: add it to packages"; exit 1; }\n'
                f"python3 -I {_PROGRAM} load {self._system} {_PLAN} || exit $?"
            )
            loaded = json.loads(read_text(root, _LOADED))
            for text in loaded["notes"]:
                note(str(text))
            names = tuple(map(str, loaded["databases"]))
        in_use = json.loads(read_text(root, CONFIGURATION) or "{}").get("database")
        return Loaded({"databases": names}, {"PGDATABASE": in_use} if self._system == "postgres" and in_use else {})


sqlite, postgres, mariadb = DatabaseLoader("sqlite"), DatabaseLoader("postgres"), DatabaseLoader("mariadb")
"""The objects that the entry points in the group `tvsnap.image_loaders` name."""


def _databases(data: Data) -> tuple[Database, ...]:
    databases: tuple[Database, ...] = data.get("databases", ())
    return databases


def _journals(path: Path, format: Format) -> list[tuple[str, Path]]:
    """Returns the journal and the write-ahead log beside a SQLite file, each with its suffix.

    They contain what was committed last, or must be rolled back, if the file was copied while it was in use.
    """
    if format != "sqlite":
        return []
    file = path.resolve()
    beside = [(suffix, file.with_name(file.name + suffix)) for suffix in ("-wal", "-journal")]
    return [(suffix, journal) for suffix, journal in beside if journal.is_file() and not journal.is_symlink()]


@contextlib.contextmanager
def _swept(root: Path) -> Iterator[None]:
    """A block with the stage in the tree; at its end the stage is removed, and all new files in /tmp and /run."""
    remove_entry(root / STAGE.lstrip("/"))
    before = set(_passing(root))
    try:
        yield
    finally:
        remove_entry(root / STAGE.lstrip("/"))
        for path in set(_passing(root)) - before:
            remove_entry(path)


def _passing(root: Path) -> Iterator[Path]:
    """Yields the contents of temporary directories. Links are not followed: they may lead out of the tree."""
    for place in (root / "tmp", root / "run"):
        if place.is_dir() and not place.is_symlink():
            yield from place.iterdir()


def _loads(system: SystemName, entry: Database, file: DataFile, work: Path, note: Callable[[str], None]) -> list[_Load]:
    """Returns what to load for a file: several scripts if it names several databases that the system separates."""
    if file.format != "sql":
        return [_Load(entry.name or file.database, file.path, file.format, file.table)]
    try:
        return _scripts(system, entry, file, work, note)
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise BuildStepFailed(f"failed: {file.path.name} cannot be unpacked: {error}") from error


def _scripts(
    system: SystemName, entry: Database, file: DataFile, work: Path, note: Callable[[str], None]
) -> list[_Load]:
    if file.dialect != system and (file.dialect == MYSQL or dumps.looks_like_mysql(_head(file.path))):
        return _read(system, entry, file, work, note)
    own = not entry.name and _names_databases(system, file.path)
    return [_Load("" if own else entry.name or file.database, file.path, "sql")]


def _read(system: SystemName, entry: Database, file: DataFile, work: Path, note: Callable[[str], None]) -> list[_Load]:
    """Returns what to load for a dump of MySQL, as far as the system can load it."""
    try:
        translation = dumps.read_mysql(file.path, work / f"dump-{len(list(work.iterdir()))}", system)
    except UsageError as error:
        raise BuildStepFailed(f"failed: {error}") from error
    for text in translation.notes:
        note(f"{file.path.name}: {text}")
    if entry.name and translation.databases and entry.name.lower() not in map(str.lower, translation.databases):
        raise BuildStepFailed(
            f"failed: {file.path.name} names its databases itself ({', '.join(translation.databases)}); give it "
            f"without a name instead of as {entry.name}"
        )
    if system == "mariadb":  # MariaDB's errors then name the lines of the dump
        (script,) = [path for _, path in translation.scripts]
        first = next(iter(translation.databases), "")
        return [
            _Load("" if first else entry.name or file.database, script, "sql", first=first, title=f"{file.stem}.sql")
        ]
    title = f"{file.stem}.translated.sql"
    return [_Load(name or entry.name or file.database, path, "sql", title=title) for name, path in translation.scripts]


def _names_databases(system: SystemName, path: Path) -> bool:
    form = _CHOICES.get(system)
    if form is None:
        return False
    with _opened(path) as stream:
        return b"\0" not in stream.peek(_HEAD)[:_HEAD] and any(map(form.match, stream))


def _head(path: Path) -> bytes:
    with _opened(path) as stream:
        return stream.read(_HEAD)


def _opened(path: Path) -> io.BufferedReader:
    packing = PACKINGS.get(path.suffix[1:])
    return path.open("rb") if packing is None else importlib.import_module(packing).open(path)
