"""CSV and SQLite files as tables: kinds of columns, rows, and what is refused."""

from __future__ import annotations

import contextlib
import csv
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvsnap.plugins.sql.inside.system import SystemFailed, Table
from tvsnap.plugins.sql.inside.tables import read_csv, read_sqlite


def from_csv(tmp_path: Path, content: str | bytes) -> Table:
    path = tmp_path / "some.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_csv(str(path), "some")


def kinds(table: Table) -> dict[str, str]:
    return {column.name: column.kind for column in table.columns}


def rows(table: Table) -> list[list[Any]]:
    found = [list(row) for row in table.rows]
    assert len(found) == len(table.rows)
    return found


# -- CSV --------------------------------------------------------------------------------------------------------------


def test_a_csv_file(tmp_path: Path) -> None:
    table = from_csv(tmp_path, 'id,name,note\n1,"a ""b"", c","two\nlines"\n\n2,,x\n')
    assert table.name == "some"
    assert kinds(table) == {"id": "integer", "name": "text", "note": "text"}
    assert rows(table) == [["1", 'a "b", c', "two\nlines"], ["2", None, "x"]]
    assert rows(table) == rows(table)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-20", "0", "9223372036854775807"], "integer"),
        (["1", "9223372036854775808"], "text"),
        (["1", "007"], "text"),
        (["1", "2.50", "-.5", "1e6"], "real"),
        (["1.5", "12345678901234567"], "text"),
        (["0.1234567890123456"], "text"),
        (["1", "NaN"], "text"),
        (["true", "FALSE"], "boolean"),
        (["true", "1"], "text"),
        (["2024-02-29"], "date"),
        (["2023-02-29"], "text"),
        (["0000-00-00"], "text"),
        (["2024-02-29", "2024-02-29 23:59:59.123456", "2024-02-29T12:00"], "timestamp"),
        (["2024-02-29 24:00:00"], "text"),
        (["2024-02-29T12:00:00Z"], "text"),
        (["", ""], "text"),
        (["", "5"], "integer"),
        ([" 5"], "text"),
        (["\u0661"], "text"),
    ],
)
def test_the_kind_of_a_column(tmp_path: Path, values: list[str], kind: str) -> None:
    table = from_csv(tmp_path, "id,v\n" + "".join(f"k,{value}\n" for value in values))
    assert kinds(table)["v"] == kind


def test_booleans_are_one_and_zero(tmp_path: Path) -> None:
    assert rows(from_csv(tmp_path, "a,b\ntrue,x\nFalse,x\n,x\n")) == [[1, "x"], [0, "x"], [None, "x"]]


@pytest.mark.parametrize(
    "content",
    [
        b"a;b\n1,5;x\n2,5;y\n",
        b"a\tb\n1,5\tx\n2,5\ty\n",
        b"a|b\n1,5|x\n2,5|y\n",
        b'\xef\xbb\xbfa,b\r\n"1,5",x\r\n"2,5",y\r\n',
        'a,b\n"1,5",x\n"2,5",y'.encode("utf-16"),
        b'a,b\r"1,5",x\r"2,5",y\r',
    ],
)
def test_ways_to_write_a_csv_file(tmp_path: Path, content: bytes) -> None:
    table = from_csv(tmp_path, content)
    assert list(kinds(table)) == ["a", "b"]
    assert rows(table) == [["1,5", "x"], ["2,5", "y"]]


def test_names_of_columns(tmp_path: Path) -> None:
    assert list(kinds(from_csv(tmp_path, " a ,,A,a_2,\n1,2,3,4,5\n"))) == ["a", "column_2", "A_2", "a_2_2", "column_5"]
    assert list(kinds(from_csv(tmp_path, "only\n1\n"))) == ["only"]
    table = from_csv(tmp_path, "a,b\n")
    assert (kinds(table), rows(table)) == ({"a": "text", "b": "text"}, [])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"\n\n", "it is empty"),
        (b"a,b\n1,2\n3\n", "line 3: 1 field where the header has 2"),
        (b"a,b\n1,2\n\n3,4,5\n", "line 4: 3 fields where the header has 2"),
        (b'a,b\n1,"2\n', "line 2: unexpected end of data"),
        (b'a,b\n1,"2"x\n', "line 2: ',' expected after '\"'"),
        (b"a,b\n1,2\n3,\0\n", "line 3: it holds a NUL character"),
        (b"a,b\n1,2\n3,caf\xe9\n", "line 3: byte 0xe9 is not UTF-8"),
    ],
)
def test_csv_files_that_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(SystemFailed) as caught:
        rows(from_csv(tmp_path, content))
    assert str(caught.value).startswith(reason)


_FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@given(st.lists(st.tuples(_FIELD, _FIELD), max_size=8), st.sampled_from(",;\t"))
def test_what_csv_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, str]], by: str
) -> None:
    path = tmp_path_factory.mktemp("csv") / "some.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter=by, quoting=csv.QUOTE_ALL)
        writer.writerow(["first", "second"])
        writer.writerows(records)
    table = read_csv(str(path), "some")
    booleans = {"boolean": lambda field: {"true": 1, "false": 0}[field.lower()]}
    expected = [
        [
            booleans.get(column.kind, str)(field) if field else None
            for column, field in zip(table.columns, record, strict=True)
        ]
        for record in records
    ]
    assert rows(table) == expected


# -- SQLite -----------------------------------------------------------------------------------------------------------


def from_sqlite(tmp_path: Path, script: str) -> dict[str, Table]:
    path = tmp_path / "some.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return {table.name: table for table in read_sqlite(str(path))}


def test_a_sqlite_file(tmp_path: Path) -> None:
    tables = from_sqlite(
        tmp_path,
        "CREATE TABLE b (y INTEGER, x VARCHAR(5) NOT NULL, z, PRIMARY KEY (x, y)) WITHOUT ROWID;"
        "INSERT INTO b VALUES (1, 'o', x'00'), (2, 'k', NULL);"
        "CREATE TABLE a (n INTEGER PRIMARY KEY AUTOINCREMENT, twice AS (n * 2)); INSERT INTO a(n) VALUES (7);"
        "CREATE VIEW v AS SELECT 1; CREATE VIRTUAL TABLE words USING fts5(word);",
    )
    assert list(tables) == ["a", "b"]
    assert rows(tables["a"]) == [[7, 14]]
    assert tables["a"].primary_key == ("n",)
    assert tables["b"].primary_key == ("x", "y")
    assert [(column.name, column.kind, column.nullable) for column in tables["b"].columns] == [
        ("y", "integer", False),
        ("x", "text", False),
        ("z", "binary", True),
    ]
    assert rows(tables["b"]) == [[2, "k", None], [1, "o", b"\0"]]


@pytest.mark.parametrize(
    ("declared", "values", "kind", "read"),
    [
        ("INTEGER", "(1), (NULL)", "integer", [1, None]),
        ("INTEGER", "(1), ('x')", "text", ["1", "x"]),
        ("INTEGER", "(1), (2.5)", "real", [1.0, 2.5]),
        ("NUMERIC(10,2)", "(1), (2)", "real", [1.0, 2.0]),
        ("NUMERIC", "(9007199254740993)", "integer", [9007199254740993]),
        ("NUMERIC", "(9007199254740993), (0.5)", "text", ["9007199254740993", "0.5"]),
        ("REAL", "(1)", "real", [1.0]),
        ("BIGINT", "(-9223372036854775808)", "integer", [-9223372036854775808]),
        ("BOOLEAN", "(1), (0)", "boolean", [1, 0]),
        ("BOOLEAN", "(1), (2)", "integer", [1, 2]),
        ("TEXT", "('1'), ('2')", "text", ["1", "2"]),
        ("TEXT", "('a'), (x'ff')", "text", ["a", "FF"]),
        ("DATE", "('2024-02-29')", "date", ["2024-02-29"]),
        ("DATE", "('2023-02-29')", "text", ["2023-02-29"]),
        ("DATE", "('2024-02-29 10:00:00')", "text", ["2024-02-29 10:00:00"]),
        ("DATETIME", "('2024-02-29'), ('2024-02-29T10:00:00')", "timestamp", ["2024-02-29", "2024-02-29T10:00:00"]),
        ("DATETIME", "('2024-02-29 25:00:00')", "text", ["2024-02-29 25:00:00"]),
        ("DATETIME", "(1700000000)", "integer", [1700000000]),
        ("", "('x')", "text", ["x"]),
        ("DATETIME", "(NULL)", "timestamp", [None]),
    ],
)
def test_the_kind_of_a_sqlite_column(tmp_path: Path, declared: str, values: str, kind: str, read: list[Any]) -> None:
    table = from_sqlite(tmp_path, f'CREATE TABLE t ("a ""column" {declared}); INSERT INTO t VALUES {values}')["t"]
    assert kinds(table) == {'a "column': kind}
    assert [row[0] for row in rows(table)] == read
    assert [type(row[0]) for row in rows(table)] == [type(value) for value in read]


def test_a_primary_key_with_nulls_is_none(tmp_path: Path) -> None:
    table = from_sqlite(tmp_path, "CREATE TABLE t (a TEXT PRIMARY KEY); INSERT INTO t VALUES (NULL), (NULL)")["t"]
    assert table.primary_key == ()
    assert table.columns[0].nullable


def test_what_is_no_sqlite_file(tmp_path: Path) -> None:
    path = tmp_path / "some.sqlite"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(SystemFailed, match="not a sound SQLite database: file is not a database"):
        read_sqlite(str(path))
    path.unlink()
    with pytest.raises(SystemFailed, match="unable to open"):
        read_sqlite(str(path))


def test_text_that_is_none(tmp_path: Path) -> None:
    table = from_sqlite(tmp_path, "CREATE TABLE t (a TEXT); INSERT INTO t VALUES (CAST(x'ff' AS TEXT))")["t"]
    with pytest.raises(SystemFailed, match="table t: Could not decode"):
        rows(table)
