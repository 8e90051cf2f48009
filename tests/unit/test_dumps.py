"""MySQL dumps for other engines: what SQLite makes of them, and the words that MariaDB and PostgreSQL are given."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvsnap.images.dumps import Converted, DumpError, convert_mysql, looks_like_mysql, splitting
from tvsnap.images.dumps.splitting import statements
from tvsnap.images.dumps.translating import Dialect

ODD = r"""-- MySQL dump 10.13  Distrib 8.0.36, for Linux (x86_64)
-- it's a comment; with "quotes" and `more
/*!40101 SET NAMES utf8mb4 */;
CREATE DATABASE /*!32312 IF NOT EXISTS*/ `Shop` /*!80016 DEFAULT ENCRYPTION='N' */;
USE `Shop`;
CREATE TABLE `Kinds` (
  `Id` int unsigned NOT NULL AUTO_INCREMENT,
  `Name` varchar(60) COLLATE utf8mb4_0900_as_cs NOT NULL DEFAULT 'it''s' COMMENT 'the kind''s name, (x)',
  `Group` enum('a','b''c','d,e') CHARACTER SET latin1 COLLATE latin1_swedish_ci DEFAULT 'a',
  PRIMARY KEY (`Id`),
  UNIQUE KEY `name` (`Name`),
  KEY `grouped` (`Group`)
) ENGINE=InnoDB AUTO_INCREMENT=50 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci COMMENT='all; (of them)';
LOCK TABLES `Kinds` WRITE;
/*!40000 ALTER TABLE `Kinds` DISABLE KEYS */;
INSERT INTO `Kinds` VALUES (1,'plain','a'),(2,'it\'s','b\'c'),(7,'semi;colon -- no /* comment */','d,e');
UNLOCK TABLES;
CREATE TABLE `items` (
  `id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `kind` int unsigned DEFAULT NULL,
  `flag` tinyint(1) NOT NULL DEFAULT '1',
  `price` decimal(19,4) DEFAULT '0.0000',
  `ratio` float(10,2) DEFAULT NULL,
  `born` date NOT NULL DEFAULT '0000-00-00',
  `made` datetime NOT NULL DEFAULT CURRENT_TIMESTAMP,
  `changed` timestamp(6) NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  `lasts` time DEFAULT NULL,
  `hash` binary(4) DEFAULT NULL,
  `mask` bit(8) DEFAULT b'101',
  `doc` json DEFAULT (json_array(1)),
  `note` text,
  `double` int GENERATED ALWAYS AS ((`flag` * 2)) STORED NOT NULL,
  `secret` int DEFAULT NULL /*!80023 INVISIBLE */,
  PRIMARY KEY (`id`),
  UNIQUE KEY `noted` (`note`(10)),
  KEY `grouped` (`flag` DESC,`kind`),
  KEY `folded` ((lower(`note`))),
  FULLTEXT KEY `words` (`note`) /*!50100 WITH PARSER `ngram` */ ,
  CONSTRAINT `items_kind` FOREIGN KEY (`kind`) REFERENCES `kinds` (`Id`) ON DELETE SET NULL ON UPDATE CASCADE,
  CONSTRAINT `positive` CHECK ((`price` >= 0)),
  CONSTRAINT `loose` CHECK ((`price` > 1000)) /*!80016 NOT ENFORCED */
) ENGINE=InnoDB AUTO_INCREMENT=12 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `items` (`id`, `kind`, `flag`, `price`, `born`, `made`, `lasts`, `hash`, `mask`, `doc`, `note`) VALUES
(1,1,1,12.5000,'1999-12-31','2020-02-29 23:59:59','838:59:59',0x0001FF00,b'1','{\"a\": \"x\\\"y\"}',
 'tab\t line\r\nend é'),
-- a remark; with 'a quote
(2,99,0,NULL,'0000-00-00','2020-01-01 00:00:00','-01:30:00',_binary '\0\'\\\Z',_binary '\0','null',NULL),
(3,NULL,0,0.0001,'2020-01-00','2020-01-01 00:00:00',NULL,NULL,0x05,NULL,'');
/*!50001 CREATE VIEW `above` AS SELECT 1 AS `Id`*/;
DELIMITER ;;
/*!50003 CREATE*/ /*!50017 DEFINER=`root`@`localhost`*/ /*!50003 TRIGGER `noticed` BEFORE INSERT ON `items` FOR EACH ROW
BEGIN
  -- it's one; two
  SET NEW.note = CONCAT(NEW.note, ';;');
END */;;
DELIMITER ;
/*!50001 DROP VIEW IF EXISTS `above`*/;
/*!50001 CREATE ALGORITHM=UNDEFINED */
/*!50013 DEFINER=`root`@`localhost` SQL SECURITY DEFINER */
/*!50001 VIEW `above` AS select `b`.`Id` AS `Id`,ifnull(`b`.`Name`,_utf8mb4'none') AS `Name`
  from `Shop`.`beneath` `b` */;
/*!50001 CREATE VIEW `beneath` AS select `k`.`Id` AS `Id`,`k`.`Name` AS `Name` from `Kinds` `k`
  where (`k`.`Name` <> '*/')
/*!50002 WITH CASCADED CHECK OPTION */;
"""


def convert(tmp_path: Path, text: str | bytes, dialect: Dialect = "sqlite") -> Converted:
    source = tmp_path / "dump.sql"
    source.write_bytes(text.encode() if isinstance(text, str) else text)
    return convert_mysql(source, tmp_path / dialect, dialect)


def script(tmp_path: Path, text: str | bytes, dialect: Dialect) -> str:
    """The one script that a dump of one database becomes."""
    ((_, path),) = convert(tmp_path, text, dialect).scripts
    return path.read_text()


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
    ],
)
def test_what_looks_like_mysql(head: bytes, expected: bool) -> None:
    assert looks_like_mysql(head) is expected


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 1 << 20])
def test_statements_do_not_depend_on_where_reads_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    text = (
        b"\xef\xbb\xbf/*!999999\\- enable the sandbox mode */\n-- it's; one\n# it's; two\n"
        b"SELECT 'a;''b\\';c', \"d;\\\"\";\n"
        b"SELECT `e;` /* f;' */, 1--1, 2*/3;;\nDELIMITER $$\nBEGIN; SELECT 'x$$'; -- it's $$\nEND$$\ndelimiter ;\n"
        b"/*!50001 CREATE VIEW v AS SELECT ';*/' */;\nlast -- it's"
    )
    path = tmp_path / "dump.sql"
    path.write_bytes(text)
    monkeypatch.setattr(splitting, "_CHUNK", chunk)
    assert [(found.line, found.text, found.delimiter) for found in statements(path)] == [
        (4, b"SELECT 'a;''b\\';c', \"d;\\\"\"", ";"),
        (5, b"SELECT `e;` /* f;' */, 1--1, 2*/3", ";"),
        (7, b"BEGIN; SELECT 'x$$'; -- it's $$\nEND", "$$"),
        (10, b"/*!50001 CREATE VIEW v AS SELECT ';*/' */", ";"),
        (11, b"last -- it's", ";"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT 1;\n\nSELECT 'x", "line 3: a string does not end"),
        ("/* x", "line 1: a comment does not end"),
        ("CREATE TABLE t (a int);\nINSERT INTO t VALUES (1,2);", "line 2: INSERT INTO t: a row has more than 1 values"),
        ("INSERT INTO t VALUES (1);", 'line 1: there is no (table|database) "t?"'),
        (
            "CREATE TABLE t (a int);\nINSERT INTO t SELECT 1;",
            "line 2: INSERT INTO t SELECT 1... is not followed by VALUES",
        ),
        ("CREATE TABLE t (a int); INSERT INTO t VALUES (1 +);", "INSERT INTO t: .* is not understood; only mariadb"),
        ("CREATE TABLE t (a int); INSERT INTO t VALUES (1) x;", "INSERT INTO t: .* is not understood"),
        ("CREATE TABLE t (a int); INSERT INTO t (b) VALUES (1);", 'INSERT INTO t: it has no column "b"'),
        ("CREATE TABLE t SELECT 1;", "CREATE TABLE t: it has no list of columns"),
        ("SET NAMES sjis;", "text in sjis cannot be converted; dump it with --default-character-set=utf8mb4"),
    ],
)
def test_what_cannot_be_converted_is_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(DumpError, match=reason):
        convert(tmp_path, text)


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"none\.sql: cannot be read"):
        convert_mysql(tmp_path / "none.sql", tmp_path / "out", "mariadb")
    with pytest.raises(DumpError, match="cannot be read"):
        convert(tmp_path, gzip.compress(b"SELECT 1;\n" * 1000)[:-9])


def test_sqlite_rows(tmp_path: Path) -> None:
    found = convert(tmp_path, gzip.compress(ODD.encode()))
    assert found.databases == ("Shop",)
    assert [name for name, _ in found.scripts] == ["Shop"]
    connection = loaded(tmp_path, ODD)
    assert rows(connection, "SELECT * FROM kinds") == [
        (1, "plain", "a"),
        (2, "it's", "b'c"),
        (7, "semi;colon -- no /* comment */", "d,e"),
    ]
    items = rows(connection, "SELECT id, kind, flag, price, born, lasts, hash, mask, doc, note, double FROM items")
    assert items == [
        (1, 1, 1, 12.5, "1999-12-31", "838:59:59", b"\0\1\xff\0", 1, '{"a": "x\\"y"}', "tab\t line\r\nend é", 2),
        (2, 99, 0, None, "0000-00-00", "-01:30:00", b"\0'\\\x1a", 0, "null", None, 0),
        (3, None, 0, 0.0001, "2020-01-00", None, None, 5, None, "", 0),
    ]
    # Views that need one another come in any order, and lose their database.
    assert rows(connection, "SELECT * FROM above WHERE id = 2") == [(2, "it's")]


def test_sqlite_definitions(tmp_path: Path) -> None:
    connection = loaded(tmp_path, ODD)
    connection.execute("INSERT INTO kinds (name, \"group\") VALUES ('new', 'A')")
    assert rows(connection, "SELECT id, name FROM kinds WHERE \"group\" = 'a' ORDER BY id") == [
        (1, "plain"),
        (50, "new"),
    ]
    assert rows(connection, "SELECT 1 FROM kinds WHERE name = 'PLAIN'") == []  # its collation regards case
    connection.execute("INSERT INTO items (born, note) VALUES ('2020-01-01', 'it is long enough: one')")
    assert rows(connection, "SELECT id, mask, doc, price FROM items WHERE id > 3") == [(12, 5, "[1]", 0)]
    for refused, reason in (
        ("INSERT INTO items (born, note) VALUES ('', 'it is long enough: two')", "UNIQUE"),
        ("INSERT INTO items (born, price) VALUES ('', -1)", "positive"),
        ("INSERT INTO items (born) VALUES (NULL)", "NOT NULL"),
        ("INSERT INTO items (born, kind) VALUES ('', 1000)", "FOREIGN KEY"),
    ):
        connection.execute("PRAGMA foreign_keys = ON")
        with pytest.raises(sqlite3.IntegrityError, match=reason):
            connection.execute(refused)
    with pytest.raises(sqlite3.IntegrityError, match="Name"):
        connection.execute("INSERT INTO kinds DEFAULT VALUES")
    connection.execute("DELETE FROM kinds WHERE id = 1")
    assert rows(connection, "SELECT kind FROM items WHERE id = 1") == [(None,)]
    indexes = rows(connection, "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY 1")
    assert indexes == [("folded",), ("grouped",), ("items_grouped",), ("noted",)]


def test_notes_say_what_is_lost(tmp_path: Path) -> None:
    assert convert(tmp_path, ODD).notes == (
        "1 trigger left out: noticed",
        "1 column of type enum or set became text: Kinds.Group",
        "2 details of tables left out: the hiding of secret of items, a check that is not enforced of items",
        "1 column no longer set to the time when their row changes: items.changed",
        "1 fulltext index left out: items.words",
    )
    notes = convert(tmp_path, ODD, "postgres").notes
    assert "2 impossible dates such as 0000-00-00 became NULL" in notes
    assert "1 column that may now be NULL, for impossible dates: items.born" in notes
    assert "1 default of an impossible date left out: items.born" in notes
    assert "1 database in which text is now compared with regard to case: Shop" in notes


def test_definitions_that_come_after_the_rows(tmp_path: Path) -> None:
    text = """
        CREATE TABLE `posts` (`id` int(11) NOT NULL, `title` varchar(9), `who` int(11)) ENGINE=InnoDB;
        CREATE TABLE `people` (`id` int(11) NOT NULL);
        INSERT INTO `posts` (`id`, `title`, `who`) VALUES (1, 'first', 1), (5, 'fifth', NULL);
        INSERT INTO `people` VALUES (1);
        ALTER TABLE `posts` ADD PRIMARY KEY (`id`), ADD KEY `who` (`who`);
        ALTER TABLE `people` ADD PRIMARY KEY (`id`);
        ALTER TABLE `posts` MODIFY `id` int(11) NOT NULL AUTO_INCREMENT, AUTO_INCREMENT=9;
        ALTER TABLE `posts` ADD CONSTRAINT `by` FOREIGN KEY (`who`) REFERENCES `people` (`id`);
        CREATE UNIQUE INDEX `titled` ON `posts` (`title`);
        UPDATE `posts` SET `title` = 'x' WHERE `id` = 1;
        RENAME TABLE `posts` TO `letters`;
    """
    connection = loaded(tmp_path, text)
    connection.execute("INSERT INTO posts (title) VALUES ('third')")
    assert rows(connection, "SELECT * FROM posts") == [(1, "x", 1), (5, "fifth", None), (9, "third", None)]
    assert rows(connection, 'SELECT "table", "from", "to" FROM pragma_foreign_key_list(\'posts\')') == [
        ("people", "who", "id")
    ]
    with pytest.raises(sqlite3.IntegrityError, match="title"):
        connection.execute("INSERT INTO posts (title) VALUES ('third')")
    converted = convert(tmp_path, text)
    assert converted.databases == ()
    assert [name for name, _ in converted.scripts] == [""]
    assert converted.notes == ("1 statement of other kinds left out: RENAME TABLE `posts` TO `letters`",)


def test_rows_in_unusual_words(tmp_path: Path) -> None:
    text = """
        CREATE TABLE `t` (`id` serial, `a` varchar(30), `n` int DEFAULT '4', `g` int AS (`n` + 1) STORED);
        insert ignore into t (id, a) values (NULL, 'abc'), (10, "d""e\\""), (10, 'again'), (null, N'xyz');
        replace t values (10, concat('a,(', 'b'), 1 + 2, NULL) # with a generated value
            , ROW(20, 0x616264, 0x10, DEFAULT), (21, _latin1 'x', TRUE, 5), (22, '5%\\%', DEFAULT, NULL);
        DELETE FROM t WHERE a = 'abc';
    """
    connection = loaded(tmp_path, text)
    assert rows(connection, "SELECT * FROM t ORDER BY id") == [
        (10, "a,(b", 3, 4),
        (11, "xyz", 4, 5),
        (20, "abd", 16, 17),
        (21, "x", 1, 2),
        (22, "5%\\%", 4, 5),
    ]
    assert "VALUES (DEFAULT, 'abc'), (10, 'd\"e\"')" in script(tmp_path, text, "postgres")


def test_tables_that_are_made_again(tmp_path: Path) -> None:
    connection = loaded(
        tmp_path,
        "CREATE TABLE t (a int); INSERT INTO t VALUES (1); DROP TABLE t;"
        "CREATE TABLE t (b int); INSERT INTO t VALUES (2);"
        "CREATE TABLE `u` LIKE `t`; INSERT INTO u VALUES (3); CREATE TABLE gone (a int); DROP TABLE IF EXISTS gone;",
    )
    assert rows(connection, "SELECT b FROM t UNION ALL SELECT b FROM u") == [(2,), (3,)]
    assert rows(connection, "SELECT name FROM sqlite_master") == [("t",), ("u",)]


def test_several_databases(tmp_path: Path) -> None:
    text = """
        CREATE USER 'a'@'%' IDENTIFIED BY 'x;y'; GRANT ALL ON *.* TO 'a'@'%'; FLUSH PRIVILEGES;
        USE `mysql`; CREATE TABLE `user` (a int); INSERT INTO `user` VALUES (1);
        CREATE DATABASE `One`; CREATE DATABASE `two`;
        USE `One`; CREATE TABLE T (a int); INSERT INTO T VALUES (1);
        USE `two`; CREATE TABLE T (a int); INSERT INTO T VALUES (2); INSERT INTO `One`.`T` VALUES (3);
        USE `One`; INSERT INTO t VALUES (4);
    """
    converted = convert(tmp_path, text)
    assert converted.databases == ("One", "two")
    assert converted.notes == (
        "2 statements about users left out",
        "1 statement about the server left out",
        "1 database of the server itself left out: mysql",
    )
    found = {}
    for name, path in converted.scripts:
        connection = sqlite3.connect(":memory:")
        connection.executescript(path.read_text())
        found[name] = rows(connection, "SELECT a FROM t")
    assert found == {"One": [(1,), (3,), (4,)], "two": [(2,)]}
    assert convert(tmp_path, text, "postgres").databases == ("one", "two")
    mariadb = convert(tmp_path, text, "mariadb")
    assert mariadb.databases == ("One", "two")
    assert mariadb.notes == converted.notes
    assert [name for name, _ in mariadb.scripts] == [""]
    written = mariadb.scripts[0][1].read_text()
    assert "`user`" not in written
    assert written.startswith("SET autocommit = 0")
    assert written.endswith("COMMIT;\n")


def test_foreign_keys_without_a_key_are_left_out(tmp_path: Path) -> None:
    text = (
        "CREATE TABLE a (x int, y int, KEY (x)); CREATE TABLE b (x int, CONSTRAINT f FOREIGN KEY (x) REFERENCES a (x),"
        "CONSTRAINT g FOREIGN KEY (x) REFERENCES c (x), CONSTRAINT h FOREIGN KEY (x) REFERENCES a (y));"
        "ALTER TABLE a ADD UNIQUE (y);"
    )
    for dialect in ("sqlite", "postgres"):
        converted = convert(tmp_path, text, dialect)
        assert converted.notes == (
            "2 foreign keys left out that refer to no key: b.f (no unique key of a), b.g (c is not in the dump)",
        )
        assert converted.scripts[0][1].read_text().count("FOREIGN KEY") == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("CREATE DATABASE `d` /*!80016 DEFAULT ENCRYPTION='N' */", "CREATE DATABASE `d` "),
        ("CREATE DATABASE d DEFAULT ENCRYPTION='N'", "CREATE DATABASE d "),
        ("SET NAMES utf8mb4 COLLATE utf8mb4_0900_ai_ci", "SET NAMES utf8mb4 COLLATE utf8mb4_uca1400_nopad_ai_ci"),
        ("SET collation_connection = 'utf8mb4_0900_bin'", "SET collation_connection = 'utf8mb4_nopad_bin'"),
        (
            "CREATE TABLE t (a text COLLATE utf8mb4_de_pb_0900_as_cs, b text COLLATE utf8mb4_zh_0900_as_cs)",
            "CREATE TABLE t (a text COLLATE utf8mb4_uca1400_german2_nopad_as_cs, "
            "b text COLLATE utf8mb4_uca1400_nopad_as_cs)",
        ),
        (
            "CREATE TABLE t (a text DEFAULT 'in utf8mb4_0900_ai_ci' /*!80023 INVISIBLE */)",
            "CREATE TABLE t (a text DEFAULT 'in utf8mb4_0900_ai_ci' )",
        ),
        (
            "CREATE TABLE t (a int, g int GENERATED ALWAYS AS ((`a` + 1)) VIRTUAL NOT NULL, b int NOT NULL)",
            "CREATE TABLE t (a int, g int GENERATED ALWAYS AS ((`a` + 1)) VIRTUAL , b int NOT NULL)",
        ),
        (
            "CREATE TABLE t (a int, KEY `x` (`a`,(lower(`b`))), KEY `y` (`b`(10)), UNIQUE KEY `z` ((a + 1)))",
            "CREATE TABLE t (a int, KEY `y` (`b`(10)))",
        ),
        (
            "CREATE TABLE t (a int, CONSTRAINT c CHECK (a > 1) /*!80016 NOT ENFORCED */, CHECK (a > 0))",
            "CREATE TABLE t (a int, CHECK (a > 0))",
        ),
        (
            "CREATE TABLE t (a int, FULLTEXT KEY w (a) /*!50100 WITH PARSER `p` */ ) COMPRESSION='zlib' ROW_FORMAT=X",
            "CREATE TABLE t (a int, FULLTEXT KEY w (a) /*!50100  */ )  ROW_FORMAT=X",
        ),
        (
            "CREATE TABLE t (`storage` int STORAGE DISK COLUMN_FORMAT FIXED, j json DEFAULT (json_array()))",
            "CREATE TABLE t (`storage` int  , j json DEFAULT (json_array()))",
        ),
        (
            "/*!50013 DEFINER=`root`@`localhost` SQL SECURITY DEFINER */",
            "/*!50013 DEFINER=`root`@`localhost` SQL SECURITY DEFINER */",
        ),
        ("CREATE DEFINER=`r`@`%` VIEW v AS SELECT 'x'", "CREATE  VIEW v AS SELECT 'x'"),
        ("INSERT INTO t VALUES (_binary '\\0;', 'utf8mb4_0900_ai_ci')",) * 2,
        ("SET @@GLOBAL.GTID_PURGED=/*!80000 '+'*/ 'x:1-5'", None),
        ("SET @MYSQLDUMP_TEMP_LOG_BIN = @@SESSION.SQL_LOG_BIN", None),
        ("/*!80000 SET SESSION information_schema_stats_expiry=0 */", None),
        ("ALTER USER 'x'@'%' IDENTIFIED BY 'y'", None),
        ("START TRANSACTION", "START TRANSACTION"),
    ],
)
def test_mariadb(tmp_path: Path, before: str, after: str | None) -> None:
    lines = script(tmp_path, before + ";", "mariadb").splitlines()
    assert lines[1:-1] == ([] if after is None else [after + ";"])


def test_mariadb_keeps_routines(tmp_path: Path) -> None:
    written = script(tmp_path, ODD, "mariadb")
    assert "DELIMITER ;;\n/*!50003 CREATE*/ /*!50017 */ /*!50003 TRIGGER `noticed` BEFORE" in written
    assert "  SET NEW.note = CONCAT(NEW.note, ';;');\nEND */\n;;\nDELIMITER ;\n" in written


def test_postgres_words(tmp_path: Path) -> None:
    written = script(tmp_path, ODD, "postgres")
    for expected in (
        '"id" bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY (START WITH 50)',
        "\"name\" varchar(60) NOT NULL DEFAULT 'it''s'",
        "\"group\" text DEFAULT 'a'",
        '"flag" smallint NOT NULL DEFAULT 1',
        '"price" numeric(19,4) DEFAULT 0.0000',
        '"ratio" real',
        '"made" timestamp(0) DEFAULT CURRENT_TIMESTAMP',
        '"changed" timestamp(6) DEFAULT CURRENT_TIMESTAMP',
        '"lasts" interval(0)',
        '"hash" bytea',
        '"mask" bigint DEFAULT 5',
        r"(1,1,1,12.5000,'1999-12-31','2020-02-29 23:59:59','838:59:59','\x0001ff00',1,"
        r"""E'{"a": "x\\"y"}',"""
        "\n"
        r" E'tab\t line\r\nend é'),(2,99,0,NULL,NULL,",
        'ALTER TABLE "items" ALTER "made" SET NOT NULL',
        'CREATE INDEX "items_grouped" ON "items" ("flag" DESC, "kind")',
    ):
        assert expected in written
    assert 'ALTER "born" SET NOT NULL' not in written
    # What it reads comes first.
    assert written.index('CREATE VIEW "beneath"') < written.index('CREATE VIEW "above"')


TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.text("'\"\\\n\r\t\0\x1a%_;,()-#/*`é😀 aN", max_size=20)
_ESCAPES = {"\0": "\\0", "'": "\\'", '"': '\\"', "\n": "\\n", "\r": "\\r", "\x1a": "\\Z", "\\": "\\\\"}


def mysql_text(value: str, doubled: bool) -> bytes:
    """A literal as mysqldump writes it, or as people do."""
    if doubled:
        return b"'" + value.replace("\\", "\\\\").replace("'", "''").encode() + b"'"
    return b"'" + "".join(_ESCAPES.get(letter, letter) for letter in value).encode() + b"'"


def mysql_bytes(value: bytes, form: int) -> bytes:
    if form == 0 and value:
        return b"0x" + value.hex().upper().encode()
    if form == 1:
        return b"X'" + value.hex().encode() + b"'"
    escaped = b"".join(_ESCAPES.get(chr(byte), "").encode() or bytes([byte]) for byte in value)
    return (b"_binary " if form == 2 else b"") + b"'" + escaped + b"'"


ROW = st.tuples(
    st.none() | TEXT,
    st.none() | st.binary(max_size=20),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)


@settings(deadline=None, max_examples=150)
@given(table=st.lists(st.tuples(ROW, st.booleans(), st.integers(0, 3)), min_size=1, max_size=5), cut=st.integers(1, 40))
def test_any_value_survives(tmp_path_factory: pytest.TempPathFactory, table: list[Any], cut: int) -> None:
    written = []
    for (text, data, whole, real), doubled, form in table:
        values = [
            b"NULL" if text is None else mysql_text(text, doubled),
            b"NULL" if data is None else mysql_bytes(data, form),
            b"NULL" if whole is None else str(whole).encode(),
            b"NULL" if real is None else repr(real).encode(),
        ]
        written.append(b"(" + b",".join(values) + b")")
    dump = b"CREATE TABLE `t` (`a` text, `b` blob, `c` bigint, `d` double);\nINSERT INTO `t` VALUES " + b",".join(
        written
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitting, "_CHUNK", cut)
        connection = loaded(tmp_path_factory.mktemp("any"), dump + b";\n")
    assert rows(connection, "SELECT * FROM t ORDER BY rowid") == [row for row, _, _ in table]
    connection.close()
