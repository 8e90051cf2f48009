"""Fills the databases of an image while it is built: runs in the image's own root, by a plan that the host wrote.

    {"database": name or null, "databases": [{"name": name, "files": [{"path", "format", "table"}]}]}

`database` is the one in use from the start. A name is empty if a script names its own databases. A path is absolute,
inside; a format is `sql`, `csv` (into `table`) or `sqlite`; files with the suffix `.gz`, `.bz2` or `.xz` are
unpacked first. The result is written to LOADED beside the plan: {"databases": the names of all databases at the end,
"notes": what was skipped}.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

from .system import CONFIGURATION, DatabaseSystem, SystemFailed
from .tables import merge_journal, read_csv, read_sqlite

LOADED = "loaded.json"
PACKINGS = {"gz": "gzip", "bz2": "bz2", "xz": "lzma"}
"""Modules that unpack files, by the ends of their names."""


def load(system: DatabaseSystem, plan_file: str, configuration: str = CONFIGURATION) -> None:
    """Creates and fills databases by a plan, printing a line for each file, and leaves the database system stopped.

    Then the configuration names the one in use. SystemFailed has the file, the line or row, and the reason.
    """
    with open(plan_file, encoding="utf-8") as stream:
        plan = json.load(stream)
    notes: List[str] = []
    system.initialise()
    system.start(loading=True)
    try:
        for database in plan["databases"]:
            if database["name"]:
                system.create_database(database["name"])
            for file in database["files"]:
                print(_load_file(system, database["name"], file, notes), flush=True)
        in_use = _in_use(system, plan)
        with open(os.path.join(os.path.dirname(plan_file), LOADED), "w", encoding="utf-8") as stream:
            json.dump({"databases": system.databases(), "notes": notes}, stream)
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one that counts
            system.stop()
        raise
    system.stop()
    _write_configuration(configuration, in_use)


def _load_file(system: DatabaseSystem, database: str, file: Dict[str, Any], notes: List[str]) -> str:
    began = time.perf_counter()
    name = os.path.basename(file["path"])
    try:
        with _unpacked(file["path"]) as path:
            if file["format"] == "sql":
                notes += [f"{name}: {note}" for note in system.load_script(path, database)]
                target = f" into {database}" if database else ""
            else:
                target = _FORMATS[file["format"]](system, database, path, file)
    except (SystemFailed, OSError) as error:
        raise SystemFailed(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    return f"loaded {name}{target} in {time.perf_counter() - began:.1f} s"


def _load_csv(system: DatabaseSystem, database: str, path: str, file: Dict[str, Any]) -> str:
    table = read_csv(path, file["table"])
    system.load_table(database, table)
    return f" into {database}.{table.name}: {_counted(len(table.rows), 'row')}"


def _load_sqlite(system: DatabaseSystem, database: str, path: str, _: Dict[str, Any]) -> str:
    merge_journal(path)
    if system.adopt(path, database):
        return f" into {database}"
    tables = read_sqlite(path)
    for table in tables:
        try:
            system.load_table(database, table)
        except SystemFailed as error:  # noqa: PERF203 - a table has many rows
            raise SystemFailed(f"table {table.name}: {error}") from None
    rows = _counted(sum(len(table.rows) for table in tables), "row")
    return f" into {database}: {_counted(len(tables), 'table')} (without indexes, foreign keys and views), {rows}"


_FORMATS: Dict[str, Callable[[DatabaseSystem, str, str, Dict[str, Any]], str]] = {
    "csv": _load_csv,
    "sqlite": _load_sqlite,
}


@contextlib.contextmanager
def _unpacked(path: str) -> Iterator[str]:
    """Yields a file, temporarily unpacked if it is compressed."""
    packing = path.rpartition(".")[2]
    if packing not in PACKINGS:
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="tvsnap-") as target:
        try:
            with importlib.import_module(PACKINGS[packing]).open(path) as source:
                shutil.copyfileobj(source, target, 1 << 20)
        except ImportError as error:
            raise SystemFailed(f"the image's Python cannot unpack it: {error}") from None
        except Exception as error:  # each module has errors of its own
            if isinstance(error, OSError) and error.errno:
                raise
            raise SystemFailed(f"it cannot be unpacked: {error}") from None
        target.flush()
        os.chmod(target.name, 0o644)  # a client may run as the server's user
        yield target.name


def _in_use(system: DatabaseSystem, plan: Dict[str, Any]) -> Optional[str]:
    """Returns the database in use from the start: the plan's, else its first, else the first that exists."""
    there = system.databases()
    named = (one["name"] for one in plan["databases"] if one["name"])
    wanted: Optional[str] = plan["database"] or next(named, None) or next(iter(there), None)
    if wanted is None or wanted in there:
        return wanted
    for name in there:  # some database systems make names lower case
        if name.lower() == wanted.lower():
            return name
    raise SystemFailed(f'no database "{wanted}", which is to be in use; there are: {", ".join(there) or "none"}')


def _write_configuration(path: str, database: Optional[str]) -> None:
    if database is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with open(path, "w", encoding="utf-8") as stream:
        json.dump({"database": database}, stream)
        stream.write("\n")
    os.chmod(path, 0o644)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
