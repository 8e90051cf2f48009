"""Images with databases, and images that start from other images: what may be said."""

from __future__ import annotations

import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from cli.image_databases import split
from tests.image_lab import write_spec
from tvsnap.images import ImageSpecError, load_source, shipped_images
from tvsnap.images.descriptions.spec import ImageBase
from tvsnap.plugins.sql.databases.files import Database, DataFile, given
from tvsnap.plugins.sql.program import sql_program


class TestSpec:
    def test_named(self, tmp_path: Path) -> None:
        folder = write_spec(
            tmp_path / "img",
            """
            debian:
            environment: mariadb
            databases:
              shop: shop.sql
              stock: [schema.sql, {from: items.csv.gz, table: goods}, more.tsv]
              world: {from: shop.sql, dialect: mysql}
              legacy: old.DB
            database: stock
            """,
            shop__sql="", schema__sql="", items__csv__gz="", more__tsv="", old__DB="",
        )  # fmt: skip
        spec = load_source(folder)
        assert spec.data["databases"] == (
            Database("shop", (DataFile(folder / "shop.sql", "sql"),)),
            Database(
                "stock",
                (
                    DataFile(folder / "schema.sql", "sql"),
                    DataFile(folder / "items.csv.gz", "csv", table="goods"),
                    DataFile(folder / "more.tsv", "csv", table="more"),
                ),
            ),
            Database("world", (DataFile(folder / "shop.sql", "sql", "mysql"),)),
            Database("legacy", (DataFile(folder / "old.DB", "sqlite"),)),
        )
        assert spec.data["database"] == "stock"

    def test_unnamed(self, tmp_path: Path) -> None:
        text = "debian:\nenvironment: sqlite\ndatabases: [all.sql, {from: all.sql, dialect: mysql}, 'my items.csv']"
        folder = write_spec(tmp_path / "img", text, all__sql="", **{"my items__csv": ""})
        spec = load_source(folder)
        assert [(entry.name, entry.title) for entry in spec.data["databases"]] == [
            ("", "all.sql"),
            ("", "all.sql"),
            ("", "my items.csv"),
        ]
        assert spec.data["databases"][2].files[0].database == "my_items"
        assert spec.data["databases"][2].files[0].table == "my items"

    def test_an_image_as_base_leaves_open_what_is_not_said(self, tmp_path: Path) -> None:
        spec = load_source(write_spec(tmp_path / "img", "image: terminal"))
        assert (spec.base, spec.environment, spec.hostname) == (ImageBase("terminal"), "", "")

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            (
                "debian:\ndatabases: {a: a.sql}",
                'databases: the environment "terminal" has none; it must be mariadb, po',
            ),
            ("debian:\ndatabase: a", 'database: the environment "terminal" has none'),
            ("environment: sqlite\ndebian:\ndatabases: a.sql", "databases: must be a mapping of names to files, or a"),
            (
                "environment: sqlite\ndebian:\ndatabases: {a b: a.sql}",
                'databases.a b: "a b" cannot be the name of a database',
            ),
            ("environment: sqlite\ndebian:\ndatabases: {../a: a.sql}", r'databases.\.\./a: "../a" cannot be the name'),
            ("environment: sqlite\ndebian:\ndatabases: {a: []}", "databases.a: needs a file to load"),
            (
                "environment: sqlite\ndebian:\ndatabases: {a: 3}",
                "databases.a: must be the path of a file",
            ),
            ("environment: sqlite\ndebian:\ndatabases: {a: {dialect: mysql}}", "databases.a: needs from"),
            (
                "environment: sqlite\ndebian:\ndatabases: [{file: a.sql}]",
                r"databases\[0\].file: unknown key; .*from, d",
            ),
            ("environment: sqlite\ndebian:\ndatabases: [b.sql]", r"databases\[0\]: .*b.sql does not exist"),
            (
                "environment: sqlite\ndebian:\ndatabases: [image.yaml]",
                r"databases\[0\]: .*ends: .sql, .csv, .*with .gz, .bz2 or .xz",
            ),
            ("environment: sqlite\ndebian:\ndatabases: [/etc/passwd]", r"databases\[0\]: .*outside the image's folder"),
            (
                "environment: sqlite\ndebian:\ndatabases: [{from: a.sql, dialect: oracle}]",
                r"databases\[0\].dialect: must be mysql, mariadb, postgres, sqlite, not 'oracle'",
            ),
            (
                "environment: sqlite\ndebian:\ndatabases: [{from: a.sql, dialect: postgres}]",
                "databases: a.sql is in the dialect postgres; sqlite takes its own, and mysql",
            ),
            ("environment: sqlite\ndebian:\ndatabases: [{from: a.sql, table: t}]", r"a.sql: a table is for CSV files"),
            ("environment: sqlite\ndebian:\ndatabases: [{from: a.csv, dialect: mysql}]", "a.csv: a dialect is for scr"),
            ("environment: sqlite\ndebian:\ndatabase: [a]", "database: must be a string, not a list"),
            ("image: 'Up Per'", "image: must be the name of an image of tvsnap's"),
            ("image: a\ndebian:", "exactly one of these keys .*image"),
        ],
    )
    def test_mistakes(self, tmp_path: Path, text: str, complaint: str) -> None:
        folder = write_spec(tmp_path / "img", text, a__sql="", a__csv="")
        with pytest.raises(ImageSpecError, match=complaint) as caught:
            load_source(folder)
        assert str(caught.value).startswith(str(folder / "image.yaml"))
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("system", ["mariadb", "postgres", "sqlite"])
    def test_shipped(self, system: str) -> None:
        spec = load_source(shipped_images()[system])
        assert (spec.name, spec.environment, spec.user) == (system, system, "root")
        assert {"python3", "bash", "procps"} <= set(spec.packages)


def test_the_program_is_the_same_each_time_and_whole() -> None:
    packed = sql_program()
    assert packed == sql_program.__wrapped__()
    sources = Path(sys.modules["tvsnap.plugins.sql.program"].__file__ or "").with_name("inside")
    with zipfile.ZipFile(BytesIO(packed)) as archive:
        packed_names = set(archive.namelist()) - {"__main__.py"}
        assert packed_names == {f"tvsnap_sql/{path.relative_to(sources)}" for path in sources.rglob("*.py")}
        assert "tvsnap_sql/sqlite/system.py" in packed_names
        assert {info.date_time[0] for info in archive.infolist()} == {1980}


def test_what_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a=b.sql", "b.sql", "c.csv"):
        Path(name).write_text("")
    there = {name: DataFile(tmp_path / name, "sql", "mysql") for name in ("a=b.sql", "b.sql")}
    table = DataFile(tmp_path / "c.csv", "csv", table="c")
    assert given(map(split, ["a=b.sql", "x=b.sql", "x=c.csv", "c.csv"]), "mysql") == (
        Database("", (there["a=b.sql"],)),
        Database("x", (there["b.sql"], table)),
        Database("", (table,)),
    )
