"""Filling databases by a plan, with the SQLite database system."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tvsnap.plugins.sql.inside.loading import load
from tvsnap.plugins.sql.inside.sqlite.system import SQLite
from tvsnap.plugins.sql.inside.system import SystemFailed


class Loader:
    """A folder to load from and into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.configuration = folder / "etc" / "tvsnap" / "sql.json"

    def file(self, name: str, content: str | bytes) -> dict[str, str]:
        data = content.encode() if isinstance(content, str) else content
        (self.folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        format_ = name.removesuffix(".gz").rpartition(".")[2]
        said = {"path": str(self.folder / name), "format": format_}
        return said | ({"table": name.partition(".")[0]} if format_ == "csv" else {})

    def load(self, databases: list[tuple[str, list[dict[str, str]]]], database: str | None = None) -> None:
        plan = {"database": database, "databases": [{"name": name, "files": files} for name, files in databases]}
        (self.folder / "plan.json").write_text(json.dumps(plan))
        system = SQLite(str(self.folder / "sqlite"), str(self.configuration))
        load(system, str(self.folder / "plan.json"), str(self.configuration))

    def query(self, database: str, query: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(self.folder / "sqlite" / f"{database}.db")) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def loader(tmp_path: Path) -> Loader:
    return Loader(tmp_path)


def sqlite_file(path: Path) -> bytes:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE s(a); INSERT INTO s VALUES (3); CREATE VIEW v AS SELECT a FROM s")
    return path.read_bytes()


def test_files_of_every_format(loader: Loader, capsys: pytest.CaptureFixture[str]) -> None:
    script = loader.file("shop.sql", "CREATE TABLE t(a); INSERT INTO t VALUES (1);")
    items = loader.file("items.csv.gz", "id,name\n" + "".join(f"{n},x\n" for n in range(1204)))
    source = loader.file("world.sqlite.gz", sqlite_file(loader.folder / "source"))
    loader.load([("shop", [script]), ("world", [source, items]), ("empty", [])])
    assert loader.query("shop", "SELECT * FROM t") == [(1,)]
    assert loader.query("world", "SELECT sum(id), typeof(id), (SELECT a FROM v) FROM items") == [(724206, "integer", 3)]
    assert loader.query("empty", "SELECT * FROM sqlite_master") == []
    lines = capsys.readouterr().out.splitlines()
    assert [line.rsplit(" in ", 1)[0] for line in lines] == [
        "loaded shop.sql into shop",
        "loaded world.sqlite.gz into world",
        "loaded items.csv.gz into world.items: 1,204 rows",
    ]
    assert json.loads(loader.configuration.read_text()) == {"database": "shop"}
    assert loader.configuration.stat().st_mode & 0o777 == 0o644
    assert json.loads((loader.folder / "loaded.json").read_text()) == {
        "databases": ["empty", "shop", "world"],
        "notes": [],
    }


def test_a_sqlite_file_that_was_copied_with_its_write_ahead_log(loader: Loader) -> None:
    live = loader.folder / "live"
    with contextlib.closing(sqlite3.connect(live, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t(a)")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("INSERT INTO t VALUES (1), (2)")
        shop = loader.file("shop.sqlite", live.read_bytes())
        loader.file("shop.sqlite-wal", Path(f"{live}-wal").read_bytes())
    loader.load([("shop", [shop])])
    assert loader.query("shop", "SELECT sum(a) FROM t") == [(3,)]
    assert [path.name for path in (loader.folder / "sqlite").iterdir()] == ["shop.db"]


def test_a_sqlite_file_that_was_copied_amid_a_transaction(loader: Loader) -> None:
    live = loader.folder / "live"
    with contextlib.closing(sqlite3.connect(live, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("CREATE TABLE t(a)")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("BEGIN")
        connection.execute("UPDATE t SET a = 2")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 4000,)] * 50)
        shop = loader.file("shop.sqlite", live.read_bytes())
        loader.file("shop.sqlite-journal", Path(f"{live}-journal").read_bytes())
    loader.load([("shop", [shop])])
    assert loader.query("shop", "SELECT * FROM t") == [(1,)]


def test_a_script_that_names_its_own_database(loader: Loader) -> None:
    script = loader.file("all.sql", ".open own.db\nCREATE TABLE t(a);\n")
    loader.load([("", [script])])
    assert loader.query("own", "SELECT * FROM t") == []
    assert json.loads(loader.configuration.read_text()) == {"database": "own"}


def test_the_database_in_use(loader: Loader) -> None:
    loader.load([("a", []), ("b", [])], database="B")
    assert json.loads(loader.configuration.read_text()) == {"database": "b"}
    with pytest.raises(SystemFailed, match=r'no database "c", which is to be in use; there are: a, b'):
        loader.load([("a", [])], database="c")


def test_nothing_to_load(loader: Loader) -> None:
    loader.load([])
    assert not loader.configuration.exists()
    assert (loader.folder / "sqlite").is_dir()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("items.csv", "a,b\n1\n", "items.csv: line 2: 1 field where the header has 2"),
        (
            "bad.sql",
            "CREATE TABLE t(a);\nINSERT INTO u VALUES (1);\n",
            "bad.sql: Parse error near line 2: no such table",
        ),
        ("bad.sqlite", "no database " * 100, "bad.sqlite: it is not a sound SQLite database"),
    ],
)
def test_a_file_that_cannot_be_loaded(loader: Loader, name: str, content: str, reason: str) -> None:
    with pytest.raises(SystemFailed) as caught:
        loader.load([("shop", [loader.file(name, content)])])
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize("module", [bz2, lzma], ids=["bz2", "xz"])
def test_other_compressions(loader: Loader, module: Any) -> None:
    name = f"shop.sql.{'xz' if module is lzma else 'bz2'}"
    file = {**loader.file(name, b""), "format": "sql"}
    Path(file["path"]).write_bytes(module.compress(b"CREATE TABLE t(a); INSERT INTO t VALUES (1);"))
    loader.load([("shop", [file])])
    assert loader.query("shop", "SELECT * FROM t") == [(1,)]
    Path(file["path"]).write_bytes(b"plain text")
    with pytest.raises(SystemFailed, match="it cannot be unpacked"):
        loader.load([("more", [file])])


def test_files_that_are_missing_or_cut_off(loader: Loader) -> None:
    file = loader.file("items.csv.gz", "a,b\n" * 1000)
    path = Path(file["path"])
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(SystemFailed, match=r"items.csv.gz: it cannot be unpacked"):
        loader.load([("shop", [file])])
    path.write_bytes(b"plain text")
    with pytest.raises(SystemFailed, match=r"items.csv.gz: it cannot be unpacked"):
        loader.load([("shop", [file])])
    path.unlink()
    with pytest.raises(SystemFailed, match=r"items.csv.gz: No such file"):
        loader.load([("shop", [file])])
