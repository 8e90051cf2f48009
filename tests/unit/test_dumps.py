"""Dumps of MySQL: what SQLite makes of them, and the words that MariaDB and PostgreSQL are given."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mysql_dump import SHOP
from tvsnap.plugins.sql.databases.dumps import DumpError, Read, looks_like_mysql, read_mysql
from tvsnap.plugins.sql.databases.dumps.splitting import statements
from tvsnap.plugins.sql.inside.lexemes import SystemName


def read(tmp_path: Path, text: str | bytes, system: SystemName = "sqlite") -> Read:
    source = tmp_path / "dump.sql"
    source.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_mysql(source, tmp_path / system, system)


def script(tmp_path: Path, text: str | bytes, system: SystemName) -> str:
    """The one script that a dump of one database becomes."""
    ((_, path),) = read(tmp_path, text, system).scripts
    return path.read_bytes().decode()


def loaded(tmp_path: Path, text: str | bytes) -> sqlite3.Connection:
    """A dump of one database, loaded into SQLite."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(script(tmp_path, text, "sqlite"))
    return connection


def rows(connection: sqlite3.Connection, query: str) -> list[Any]:
    return connection.execute(query).fetchall()


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"-- MySQL dump 10.13  Distrib 8.0.30\n--\n", True),
        (b"/*M!999999\\- enable the sandbox mode */ \n-- MariaDB dump 10.19", True),
        (b"-- phpMyAdmin SQL Dump\n", True),
        (b"CREATE TABLE `t` (a int) ENGINE=InnoDB;", True),
        (gzip.compress(b"-- MySQL dump 10.13\n" * 100)[:60], True),
        (b"\x1f\x8bnot gzip at all", False),
        (b"--\n-- PostgreSQL database dump\n--\nSET statement_timeout = 0;\n", False),
        (b"PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\nCREATE TABLE t(a);", False),
        (b"CREATE TABLE IF NOT EXISTS `t` (`a` text);", False),  # SQLite takes such names as well
    ],
)
def test_what_looks_like_mysql(head: bytes, expected: bool) -> None:
    assert looks_like_mysql(head) is expected


def test_statements() -> None:
    text = (
        b"\xef\xbb\xbf/*!999999\\- enable the sandbox mode */\n-- it's; one\n# it's; two\n"
        b"SELECT 'a;''b\\';c', \"d;\\\"\";\n"
        b"SELECT `e;` /* f;' */, 1--1, 2*/3;;\nDELIMITER $$\nBEGIN; SELECT 'x$$'; -- it's $$\nEND$$\ndelimiter ;\n"
        b"/*!50001 CREATE VIEW v AS SELECT ';*/' */;\nlast -- it's"
    )
    found = list(statements(text))
    assert [(one.line, one.text) for one in found] == [
        (4, b"SELECT 'a;''b\\';c', \"d;\\\"\""),
        (5, b"SELECT `e;` /* f;' */, 1--1, 2*/3"),
        (7, b"BEGIN; SELECT 'x$$'; -- it's $$\nEND"),
        (10, b"/*!50001 CREATE VIEW v AS SELECT ';*/' */"),
        (11, b"last -- it's"),
    ]
    assert all(text[one.start : one.end] == one.text for one in found)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("SET @a = 1;\n\nSELECT 'x", 3, "a string or quoted name does not end"),
        ("/* x", 1, "a comment does not end"),
        ("USE `mysql`; CREATE TABLE user (a int);", 1, "mysql is the server's own database; dump yours by name"),
        ("CREATE DATABASE `sys`;", 1, "sys is the server's own database"),
        (
            "USE x;\nsource rows.sql;\nSELECT 1;",
            2,
            "another script, rows.sql, is not read from here: give",
        ),
        ("USE x;\n\\. a/rows.sql\nSELECT 1;", 2, "another script, a/rows.sql, is not read from here"),
    ],
)
@pytest.mark.parametrize("system", ["sqlite", "postgres", "mariadb"])
def test_what_no_system_can_load(tmp_path: Path, system: SystemName, text: str, line: int, reason: str) -> None:
    with pytest.raises(DumpError) as caught:
        read(tmp_path, text, system)
    assert str(caught.value).startswith(f"{tmp_path / 'dump.sql'}: line {line}: {reason}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("INSERT INTO t SELECT 1", "a statement of this kind (INSERT INTO t SELECT 1)"),
        ("INSERT IGNORE INTO t VALUES (1)", "a statement of this kind"),
        ("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 2", "a statement of this kind"),
        ("REPLACE INTO t VALUES (1)", "a statement of this kind"),
        ("INSERT INTO t VALUES (1 +)", "Required keyword: 'expression' missing"),
        ("CREATE TABLE t AS SELECT 1", "a statement of this kind (TABLE)"),
        ("CREATE TABLE t (a int) PARTITION BY HASH(a) PARTITIONS 4", "a statement of this kind"),
        ("ALTER TABLE t ADD PRIMARY KEY (a)", "a statement of this kind (TABLE)"),
        ("CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 1", "a statement of this kind"),
        ("DELIMITER ;;\nCREATE PROCEDURE p() BEGIN SELECT 1; END ;;", "a statement of this kind"),
        ("CREATE TABLE t (a bit(8))", "the type BIT(8) of t.a"),
        ("CREATE TABLE t (a geometry)", "the type GEOMETRY of t.a"),
        ("INSERT INTO t VALUES (_binary 'x')", "a string in _binary: dump with"),
        ("INSERT INTO t VALUES ('a\\0b')", "a NUL character in a text"),
        ("INSERT INTO o VALUES (1, 'b')", "text in the binary column o.b: dump with --hex-blob"),
        ("INSERT INTO o (B) VALUES (''), ('b')", "text in the binary column o.b: dump with --hex-blob"),
        (b"INSERT INTO t VALUES ('\xff')", "it is not UTF-8: dump with --default-character-set=utf8mb4 --hex-blob"),
    ],
)
@pytest.mark.parametrize("system", ["sqlite", "postgres"])
def test_what_cannot_be_translated_is_named(tmp_path: Path, system: SystemName, text: str | bytes, reason: str) -> None:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(DumpError) as caught:
        read(tmp_path, b"CREATE TABLE o (a int, b blob);\n\n" + data, system)
    line = 4 if data.startswith(b"DELIMITER") else 3
    said = str(caught.value)
    assert f"dump.sql: line {line}: this cannot be translated for {system}: {reason}" in said
    assert said.endswith("; load the dump in an image of mariadb, and what is needed of it as CSV here")
    assert "\n" not in said


def test_sqlite_numbers_its_primary_key_alone(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"AUTO_INCREMENT of t\.a, which is not the primary key"):
        read(tmp_path, "CREATE TABLE t (a int AUTO_INCREMENT, b int, PRIMARY KEY (a, b))")


def test_a_script_of_people(tmp_path: Path) -> None:
    """Keys beside their columns, and a view that reads another that comes later."""
    text = """
        create table t (id int auto_increment primary key, n int unique, key (n desc));
        insert into t (n) values (7), (8) # two
        ;
        create view above as select n / 2 as half from beneath;
        create or replace view beneath as select n from t where n = 7 || n = 8;
    """
    connection = loaded(tmp_path, text)
    assert rows(connection, "SELECT * FROM t") == [(1, 7), (2, 8)]
    assert rows(connection, "SELECT half FROM above ORDER BY 1") == [(3.5,), (4,)]
    with pytest.raises(DumpError, match=r"line 5: this cannot be translated for sqlite: "):
        read(tmp_path, text.replace("n / 2", "cast(n as nosuch"))


def test_damaged_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"none\.sql: cannot be read"):
        read_mysql(tmp_path / "none.sql", tmp_path / "out", "mariadb")
    with pytest.raises(DumpError, match="cannot be read"):
        read(tmp_path, gzip.compress(b"SELECT 1;\n" * 1000)[:-9])
    assert read(tmp_path, b"").scripts == ()


def test_sqlite_rows(tmp_path: Path) -> None:
    found = read(tmp_path, gzip.compress(SHOP.encode()))
    assert found.databases == ("Shop",)
    assert [name for name, _ in found.scripts] == ["Shop"]
    connection = loaded(tmp_path, SHOP)
    assert rows(connection, "SELECT * FROM kinds") == [
        (1, "plain", "a"),
        (2, "it's", "b'c"),
        (7, "semi;colon -- no /* comment */", "d,e"),
    ]
    items = rows(connection, "SELECT id, kind, flag, price, born, lasts, hash, doc, note FROM items")
    assert items == [
        (1, 1, 1, 12.5, "1999-12-31", "838:59:59", b"\0\1\xff\0", '{"a": "x\\"y"}', "tab\t line\r\nend é"),
        (2, 99, 0, None, "1970-01-01", "-01:30:00", b"\0", "null", None),
        (3, None, 0, 0.0001, "2020-01-01", None, None, None, "5%\\% \\_"),
    ]
    # Views that need one another come in any order, and lose their database.
    assert rows(connection, "SELECT * FROM above WHERE id = 2") == [(2, "it's")]


def test_sqlite_definitions(tmp_path: Path) -> None:
    connection = loaded(tmp_path, SHOP)
    connection.execute("INSERT INTO kinds (name, \"group\") VALUES ('new', 'A')")
    chosen = rows(connection, "SELECT id, name FROM kinds WHERE \"group\" = 'a' ORDER BY id")
    assert chosen == [(1, "plain"), (8, "new")]
    assert rows(connection, "SELECT 1 FROM kinds WHERE name = 'PLAIN'") == []  # its collation regards case
    connection.execute("INSERT INTO items (born, note) VALUES ('2020-01-01', 'it is new')")
    assert rows(connection, "SELECT id, price, flag FROM items WHERE id > 3") == [(4, 0, 1)]
    connection.execute("PRAGMA foreign_keys = ON")
    for refused, reason in (
        ("INSERT INTO items (born, note) VALUES ('', 'IT IS NEW')", "UNIQUE"),
        ("INSERT INTO items (born, price) VALUES ('', -1)", "positive"),
        ("INSERT INTO items (born) VALUES (NULL)", "NOT NULL"),
        ("INSERT INTO items (born, kind) VALUES ('', 1000)", "FOREIGN KEY"),
    ):
        with pytest.raises(sqlite3.IntegrityError, match=reason):
            connection.execute(refused)
    connection.execute("DELETE FROM kinds WHERE id = 1")
    assert rows(connection, "SELECT kind FROM items WHERE id = 1") == [(None,)]
    indexes = rows(connection, "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY 1")
    assert indexes == [("Kinds_grouped",), ("items_folded",), ("items_grouped",)]


def test_notes_say_what_is_lost(tmp_path: Path) -> None:
    lost = (
        "statements about users left out: 2",
        "columns of type enum or set that became text: 1",
        "columns no longer set to the time when their row changes: 1",
        "full-text and spatial indexes left out: 1",
        "columns that keys now hold as a whole, and not their beginning: 1",
    )
    assert set(read(tmp_path, SHOP).notes) == set(lost)
    of_postgres = set(read(tmp_path, SHOP, "postgres").notes) - set(lost)
    assert of_postgres == {"columns in which text is now compared with regard to case: 2"}
    assert read(tmp_path, SHOP, "mariadb").notes == ()


def test_what_is_changed_again(tmp_path: Path) -> None:
    connection = loaded(
        tmp_path,
        "CREATE TABLE t (a int); INSERT INTO t VALUES (1); DROP TABLE IF EXISTS t;"
        "CREATE TABLE t (b int, c varchar(9));"
        "INSERT INTO t (c, b) VALUES ('x', TRUE), (N'y\r', 2), (_utf8mb4'z', NULL);"
        "UPDATE t SET c = 'yy' WHERE c = 'y\r'; DELETE FROM t WHERE b IS NULL;"
        "CREATE VIEW v AS SELECT b FROM t; DROP VIEW v;",
    )
    assert rows(connection, "SELECT * FROM t") == [(1, "x"), (2, "yy")]
    assert rows(connection, "SELECT name FROM sqlite_master") == [("t",)]


def test_several_databases(tmp_path: Path) -> None:
    text = """
        CREATE DATABASE /*!32312 IF NOT EXISTS*/ `One`; CREATE DATABASE `two`;
        USE `One`; CREATE TABLE T (a int); INSERT INTO T VALUES (1);
        USE `two`; CREATE TABLE T (a int); INSERT INTO T VALUES (2);
        USE `One`; INSERT INTO t VALUES (4);
    """
    found = read(tmp_path, text)
    assert found.databases == ("One", "two")
    held = {}
    for name, path in found.scripts:
        connection = sqlite3.connect(":memory:")
        connection.executescript(path.read_text())
        held[name] = rows(connection, "SELECT a FROM t")
    assert held == {"One": [(1,), (4,)], "two": [(2,)]}
    assert read(tmp_path, text, "postgres").databases == ("one", "two")
    mariadb = read(tmp_path, text, "mariadb")
    assert mariadb.databases == ("One", "two")
    assert [name for name, _ in mariadb.scripts] == [""]
    assert mariadb.scripts[0][1].read_text() == text
    nameless = read(tmp_path, "CREATE TABLE t (a int);", "postgres")
    assert (nameless.databases, [name for name, _ in nameless.scripts]) == ((), [""])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SET NAMES utf8mb4 COLLATE utf8mb4_0900_ai_ci", "SET NAMES utf8mb4 COLLATE utf8mb4_uca1400_nopad_ai_ci"),
        ("SET collation_connection = utf8mb4_0900_bin", "SET collation_connection = utf8mb4_nopad_bin"),
        (
            "/*!50503 CREATE TABLE t (a text COLLATE utf8mb4_de_pb_0900_as_cs,\nb int) COLLATE=utf8mb4_zh_0900_as_cs*/",
            "/*!50503 CREATE TABLE t (a text COLLATE utf8mb4_uca1400_german2_nopad_as_cs,\nb int) "
            "COLLATE=utf8mb4_uca1400_nopad_as_cs*/",
        ),
        ("CREATE TABLE t (a text DEFAULT 'in utf8mb4_0900_ai_ci' /* utf8mb4_0900_ai_ci */)",) * 2,
        ("/*!50013 DEFINER=`root`@`localhost` SQL SECURITY DEFINER */", "/*!50013  SQL SECURITY DEFINER */"),
        ("CREATE DEFINER=`r`@`%` VIEW v AS SELECT 'DEFINER=r@x'", "CREATE  VIEW v AS SELECT 'DEFINER=r@x'"),
        ("INSERT INTO t VALUES (_binary '\\0;', utf8mb4_0900_ai_ci)",) * 2,
        ("SET @@GLOBAL.GTID_PURGED=/*!80000 '+'*/ 'x:1-5'", "SET @gtid_purged=/*!80000 '+'*/ 'x:1-5'"),
        ("START TRANSACTION",) * 2,
    ],
)
def test_mariadb(tmp_path: Path, before: str, after: str) -> None:
    assert script(tmp_path, f"-- it's\n{before};\nDELIMITER ;;\n", "mariadb") == f"-- it's\n{after};\nDELIMITER ;;\n"


def test_mariadb_keeps_lines_and_routines(tmp_path: Path) -> None:
    trigger = """DELIMITER ;;
/*!50003 CREATE*/ /*!50017 DEFINER=`root`@`localhost`*/ /*!50003 TRIGGER `noticed` BEFORE INSERT ON `items` FOR EACH ROW
BEGIN
  -- it's one; two
  SET NEW.note = CONCAT(NEW.note, ';;');
END */;;
DELIMITER ;
"""
    written = script(tmp_path, SHOP + trigger, "mariadb")
    assert written.endswith(trigger.replace("DEFINER=`root`@`localhost`", ""))
    assert written.count("\n") == (SHOP + trigger).count("\n")


def test_postgres_words(tmp_path: Path) -> None:
    written = script(tmp_path, SHOP, "postgres")
    for expected in (
        '"id" bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY',
        "\"name\" varchar(60) NOT NULL DEFAULT 'it''s'",
        "\"group\" text DEFAULT 'a'",
        "\"flag\" smallint NOT NULL DEFAULT '1'",
        "\"price\" numeric(19, 4) DEFAULT '0.0000'",
        '"ratio" real',
        '"made" timestamp(0) NOT NULL DEFAULT CURRENT_TIMESTAMP',
        '"changed" timestamp(6)',
        '"lasts" interval',
        '"hash" bytea',
        '"doc" jsonb',
        r"""'838:59:59', '\x0001FF00', '{"a": "x\"y"}', 'tab""",
        'ADD CONSTRAINT "items_kind" FOREIGN KEY ("kind") REFERENCES "kinds" ("id") ON DELETE SET NULL',
        """SELECT setval(pg_get_serial_sequence('"kinds"', 'id'), coalesce(max("id"), 0) + 1, false) FROM "kinds";""",
    ):
        assert expected in written
    # What it reads comes first.
    assert written.index('CREATE VIEW "beneath"') < written.index('CREATE VIEW "above"')


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20) | st.text(
    "'\"\\\n\r\t\x1a%_;,()-#/*`é😀 aN", max_size=20
)
_ESCAPES = {"'": "\\'", '"': '\\"', "\n": "\\n", "\r": "\\r", "\x1a": "\\Z", "\\": "\\\\"}


def mysql_text(value: str, doubled: bool) -> bytes:
    """A literal as mysqldump writes it, or as people do."""
    if doubled:
        return b"'" + value.replace("\\", "\\\\").replace("'", "''").encode() + b"'"
    return b"'" + "".join(_ESCAPES.get(letter, letter) for letter in value).encode() + b"'"


def mysql_bytes(value: bytes, short: bool) -> bytes:
    """A literal as mysqldump writes it with --hex-blob, or as people do."""
    if short:
        return b"0x" + value.hex().upper().encode() if value else b"''"
    return b"X'" + value.hex().encode() + b"'"


ROW = st.tuples(
    st.none() | TEXT,
    st.none() | st.binary(max_size=20),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)


@settings(deadline=None, max_examples=60)
@given(table=st.lists(st.tuples(ROW, st.booleans(), st.booleans()), min_size=1, max_size=5))
def test_any_value_survives(tmp_path_factory: pytest.TempPathFactory, table: list[Any]) -> None:
    written = []
    for (text, data, whole, real), doubled, short in table:
        values = [
            b"NULL" if text is None else mysql_text(text, doubled),
            b"NULL" if data is None else mysql_bytes(data, short),
            b"NULL" if whole is None else str(whole).encode(),
            b"NULL" if real is None else repr(real).encode(),
        ]
        written.append(b"(" + b",".join(values) + b")")
    dump = b"CREATE TABLE `t` (`a` text, `b` blob, `c` bigint, `d` double);\nINSERT INTO `t` VALUES "
    connection = loaded(tmp_path_factory.mktemp("any"), dump + b",".join(written) + b";\n")
    assert rows(connection, "SELECT * FROM t ORDER BY rowid") == [row for row, _, _ in table]
    connection.close()
