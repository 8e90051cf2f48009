"""What each database system's values and sessions look like: cases for the tests of all database systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

EMOJI = "\N{GRINNING FACE}\N{SNOWMAN}é"
AWKWARD = f'it\'s "quoted" and {EMOJI},\n\ta line \x01 and a \x7f'

# A query of one row, and that row: values of all kinds, exact.
VALUES: dict[str, list[tuple[str, list[Any]]]] = {
    "sqlite": [
        ("SELECT NULL, 1, 'x'", [None, 1, "x"]),
        ("SELECT 9007199254740993, -9223372036854775807 - 1", [9007199254740993, -9223372036854775808]),
        ("SELECT 0.1, -2.5e-300, 3.0", [0.1, -2.5e-300, 3.0]),
        ("SELECT typeof(9e999), abs(-9e999) = 9e999", ["real", 1]),
        ("SELECT '123456789012345678901234567890.123'", ["123456789012345678901234567890.123"]),
        ("SELECT date('2024-02-29', '+1 year'), 1 < 2", ["2025-03-01", 1]),
        ("SELECT x'00ff80', x'', CAST('ab' AS BLOB)", [{"base64": "AP+A"}, {"base64": ""}, {"base64": "YWI="}]),
        ("SELECT 'a' || char(0) || 'b'", ["a\0b"]),
    ],
    "postgres": [
        ("SELECT NULL, 1, 'x'", [None, 1, "x"]),
        ("SELECT 9007199254740993, (-9223372036854775808)::bigint", [9007199254740993, -9223372036854775808]),
        ("SELECT 0.1::float8, 1.5::float4, -2.5e-300::float8, 3::float8", [0.1, 1.5, -2.5e-300, 3.0]),
        ("SELECT 'NaN'::float8, '-Infinity'::float8, 'NaN'::numeric", ["NaN", "-Infinity", "NaN"]),
        (
            "SELECT 123456789012345678901234567890.123456789, 0.10::numeric, 18446744073709551616",
            ["123456789012345678901234567890.123456789", "0.10", "18446744073709551616"],
        ),
        ("SELECT true, 1 > 2, NULL::boolean", [True, False, None]),
        (
            "SELECT date '2024-02-29', timestamp '2024-02-29 12:34:56.000001', time '23:59:59.5', 'infinity'::date",
            ["2024-02-29", "2024-02-29 12:34:56.000001", "23:59:59.5", "infinity"],
        ),
        (
            "SET timezone = 'UTC'; SELECT '2024-06-01 12:00+02'::timestamptz, '1 mon 2 days 03:00'::interval",
            ["2024-06-01 10:00:00+00", "1 mon 2 days 03:00:00"],
        ),
        (r"SELECT '\x00ff80'::bytea, ''::bytea", [{"base64": "AP+A"}, {"base64": ""}]),
        (
            "SELECT ARRAY[1, NULL, 3], '{\"a\": [1, 2]}'::jsonb, '0b1a3c52-0c6b-4a11-9d0f-2b1f0c3d4e5f'::uuid",
            ["{1,NULL,3}", '{"a": [1, 2]}', "0b1a3c52-0c6b-4a11-9d0f-2b1f0c3d4e5f"],
        ),
    ],
    "mariadb": [
        ("SELECT NULL, 1, 'x'", [None, 1, "x"]),
        (
            "SELECT 9007199254740993, -9223372036854775808, CAST(18446744073709551615 AS UNSIGNED)",
            [9007199254740993, -9223372036854775808, 18446744073709551615],
        ),
        ("SELECT 1e-1, -2.5e-300, 3e0", [0.1, -2.5e-300, 3.0]),
        (
            "SELECT 123456789012345678901234567890.123456789, 0.10",
            ["123456789012345678901234567890.123456789", "0.10"],
        ),
        ("SELECT TRUE, 1 > 2", [1, 0]),
        (
            "SELECT DATE '2024-02-29', TIMESTAMP '2024-02-29 12:34:56.000001', TIME '-838:59:59'",
            ["2024-02-29", "2024-02-29 12:34:56.000001", "-838:59:59"],
        ),
        ("SELECT x'00ff80', CAST(x'' AS BINARY)", [{"base64": "AP+A"}, {"base64": ""}]),
        (r"SELECT 'a\0b', CONCAT(1, 'x'), JSON_OBJECT('a', 1)", ["a\0b", "1x", '{"a": 1}']),
    ],
}

TEXT_LITERAL: dict[str, Callable[[str], str]] = {
    "sqlite": lambda text: "'" + text.replace("'", "''") + "'",
    "postgres": lambda text: "'" + text.replace("'", "''") + "'",
    "mariadb": lambda text: "'" + text.replace("\\", "\\\\").replace("'", "''") + "'",
}

# Columns of a table, what is put into them, and what is read.
STORED: dict[str, tuple[str, str, list[Any]]] = {
    "sqlite": (
        "i INTEGER, r REAL, d NUMERIC, s TEXT, b BLOB, n TEXT",
        "9007199254740993, 1, '2024-02-29', 'x', x'0001', NULL",
        [9007199254740993, 1.0, "2024-02-29", "x", {"base64": "AAE="}, None],
    ),
    "postgres": (
        "i bigint, r double precision, d numeric(30, 4), s varchar(9), b bytea, t timestamp, n text",
        r"9007199254740993, 1, 12345678901234567890.5, 'x', '\x0001', '2024-02-29', NULL",
        [9007199254740993, 1.0, "12345678901234567890.5000", "x", {"base64": "AAE="}, "2024-02-29 00:00:00", None],
    ),
    "mariadb": (
        "i BIGINT, r DOUBLE, d DECIMAL(30, 4), s VARCHAR(9), b BLOB, t DATETIME, n TEXT, e ENUM('a', 'b'), j JSON",
        "9007199254740993, 1, 12345678901234567890.5, 'x', x'0001', '2024-02-29', NULL, 'b', '[1]'",
        [
            9007199254740993,
            1.0,
            "12345678901234567890.5000",
            "x",
            {"base64": "AAE="},
            "2024-02-29 00:00:00",
            None,
            "b",
            "[1]",
        ],
    ),
}

# What fails, what the database system's error must say, and its code.
ERRORS: dict[str, list[tuple[str, str, str]]] = {
    "sqlite": [
        ("SELECT * FROM nowhere", "no such table: nowhere", "SQLITE_ERROR"),
        ("SELEC 1", 'near "SELEC": syntax error', "SQLITE_ERROR"),
        ("INSERT INTO items VALUES (1, 'x', 1)", "UNIQUE constraint failed: items.id", "SQLITE_CONSTRAINT"),
    ],
    "postgres": [
        ("SELECT * FROM nowhere", 'ERROR:  relation "nowhere" does not exist\nLINE 1: SELECT * FROM nowhere', "42P01"),
        ("SELEC 1", 'ERROR:  syntax error at or near "SELEC"', "42601"),
        (
            "INSERT INTO items VALUES (1, 'x', 1)",
            'ERROR:  duplicate key value violates unique constraint "items_pkey"\n'
            "DETAIL:  Key (id)=(1) already exists.",
            "23505",
        ),
        ("SELECT 1 / 0", "ERROR:  division by zero", "22012"),
    ],
    "mariadb": [
        ("SELECT * FROM nowhere", "ERROR 1146 (42S02): Table 'shop.nowhere' doesn't exist", "42S02"),
        ("SELEC 1", "ERROR 1064 (42000): You have an error in your SQL syntax", "42000"),
        ("INSERT INTO items VALUES (1, 'x', 1)", "ERROR 1062 (23000): Duplicate entry '1' for key 'PRIMARY'", "23000"),
    ],
}

MESSAGES: dict[str, tuple[str, str]] = {
    "postgres": ("DROP TABLE IF EXISTS nowhere", 'NOTICE:  table "nowhere" does not exist, skipping'),
    "mariadb": ("SELECT CAST('1x' AS INTEGER)", "Warning 1292: Truncated incorrect INTEGER value: '1x'"),
}

SERIES = {
    "sqlite": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < {}) SELECT n FROM r",
    "postgres": "SELECT generate_series(1, {}) AS n",
    "mariadb": "SELECT seq AS n FROM seq_1_to_{}",
}
"""Queries of that many rows, from 1."""


@dataclass(frozen=True)
class Held:
    """Something that a session holds.

    Attributes:
        setup: what makes it.
        look: a query that tells it.
        seen: what that returns, after `setup`.
        step: what changes it, by a number `{n}`.
        after: what `look` returns then.
    """

    setup: tuple[str, ...]
    look: str
    seen: list[list[Any]]
    step: str
    after: Callable[[int], list[list[Any]]]


_TABLE = ("CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (100)")
_ROWS = "SELECT n FROM t ORDER BY n"
_COMMON = {
    "transaction, to be committed": Held(
        (*_TABLE, "BEGIN", "INSERT INTO t VALUES (200)"),
        _ROWS,
        [[100], [200]],
        "INSERT INTO t VALUES ({n}); COMMIT",
        lambda n: [[n], [100], [200]],
    ),
    "transaction, to be rolled back": Held(
        (*_TABLE, "BEGIN", "INSERT INTO t VALUES (200)"),
        _ROWS,
        [[100], [200]],
        "ROLLBACK; INSERT INTO t VALUES ({n})",
        lambda n: [[n], [100]],
    ),
    "savepoint": Held(
        (*_TABLE, "BEGIN", "INSERT INTO t VALUES (200)", "SAVEPOINT s", "INSERT INTO t VALUES (300)"),
        _ROWS,
        [[100], [200], [300]],
        "ROLLBACK TO SAVEPOINT s; INSERT INTO t VALUES ({n}); COMMIT",
        lambda n: [[n], [100], [200]],
    ),
    "temporary table": Held(
        ("CREATE TEMPORARY TABLE w (n INTEGER)", "INSERT INTO w VALUES (100)"),
        "SELECT n FROM w ORDER BY n",
        [[100]],
        "INSERT INTO w VALUES ({n})",
        lambda n: [[n], [100]],
    ),
}
HELD: dict[str, dict[str, Held]] = {
    "sqlite": {
        **_COMMON,
        "pragma": Held(
            ("PRAGMA cache_size = -100",),
            "PRAGMA cache_size",
            [[-100]],
            "PRAGMA cache_size = -{n}00",
            lambda n: [[-100 * n]],
        ),
        "attached database": Held(
            ("ATTACH ':memory:' AS m", "CREATE TABLE m.t (n INTEGER)", "INSERT INTO m.t VALUES (100)"),
            "SELECT n FROM m.t ORDER BY n",
            [[100]],
            "INSERT INTO m.t VALUES ({n})",
            lambda n: [[n], [100]],
        ),
        "attached file": Held(
            ("ATTACH '/srv/sqlite/spare.db' AS m", "SELECT * FROM m.parts"),
            "SELECT id FROM m.parts ORDER BY id",
            [[1]],
            "INSERT INTO m.parts VALUES ({n}0, 'nut')",
            lambda n: [[1], [n * 10]],
        ),
        "last row": Held(
            ("CREATE TABLE t (n INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (70)"),
            "SELECT last_insert_rowid()",
            [[70]],
            "INSERT INTO t VALUES ({n})",
            lambda n: [[n]],
        ),
    },
    "postgres": {
        **_COMMON,
        "setting": Held(
            ("SET my.value = 'one'", "SET extra_float_digits = 0"),
            "SELECT current_setting('my.value'), current_setting('extra_float_digits')",
            [["one", "0"]],
            "SET my.value = '{n}'",
            lambda n: [[str(n), "0"]],
        ),
        "prepared statement": Held(
            ("PREPARE p (integer) AS SELECT $1 + 10",),
            "EXECUTE p (1)",
            [[11]],
            "DEALLOCATE p; PREPARE p (integer) AS SELECT $1 * {n}",
            lambda n: [[n]],
        ),
        "advisory lock": Held(
            ("SELECT pg_advisory_lock(50)",),
            "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() ORDER BY 1",
            [[50]],
            "SELECT pg_advisory_lock({n})",
            lambda n: [[n], [50]],
        ),
        "cursor": Held(
            ("BEGIN", "DECLARE c SCROLL CURSOR FOR SELECT generate_series(1, 10)", "FETCH 2 FROM c"),
            "FETCH 0 FROM c",
            [[2]],
            "MOVE {n} FROM c",
            lambda n: [[2 + n]],
        ),
        "sequence": Held(
            ("CREATE SEQUENCE q", "SELECT nextval('q')"),
            "SELECT currval('q'), last_value FROM q",
            [[1, 1]],
            "SELECT setval('q', 10 + {n})",
            lambda n: [[10 + n, 10 + n]],
        ),
        "role": Held(
            ("CREATE ROLE one", "CREATE ROLE role1; CREATE ROLE role2; CREATE ROLE role3", "SET ROLE one"),
            "SELECT current_user",
            [["one"]],
            "RESET ROLE; SET ROLE role{n}",
            lambda n: [[f"role{n}"]],
        ),
    },
    "mariadb": {
        **_COMMON,
        "user variable": Held(("SET @a = 'one'",), "SELECT @a", [["one"]], "SET @a = {n}", lambda n: [[n]]),
        "session setting": Held(
            ("SET SESSION group_concat_max_len = 100",),
            "SELECT @@group_concat_max_len",
            [[100]],
            "SET SESSION group_concat_max_len = {n}000",
            lambda n: [[1000 * n]],
        ),
        "prepared statement": Held(
            ("PREPARE p FROM 'SELECT ? + 10'", "SET @x = 1"),
            "EXECUTE p USING @x",
            [[11]],
            "PREPARE p FROM 'SELECT ? * {n}'",
            lambda n: [[n]],
        ),
        "user lock": Held(
            ("SELECT GET_LOCK('one', 0)",),
            "SELECT IS_FREE_LOCK('one'), IS_FREE_LOCK('1'), IS_FREE_LOCK('2'), IS_FREE_LOCK('3')",
            [[0, 1, 1, 1]],
            "SELECT GET_LOCK('{n}', 0)",
            lambda n: [[0, *(0 if n == other else 1 for other in (1, 2, 3))]],
        ),
        "database in use": Held(
            ("USE spare",),
            "SELECT DATABASE()",
            [["spare"]],
            "CREATE DATABASE d{n}; USE d{n}",
            lambda n: [[f"d{n}"]],
        ),
        "last row": Held(
            ("CREATE TABLE t (n INTEGER PRIMARY KEY AUTO_INCREMENT, m INTEGER)", "INSERT INTO t (m) VALUES (7), (8)"),
            "SELECT LAST_INSERT_ID()",
            [[1]],
            "SELECT LAST_INSERT_ID({n}0)",
            lambda n: [[10 * n]],
        ),
    },
}
