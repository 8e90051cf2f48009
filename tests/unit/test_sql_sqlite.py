"""The SQLite system on this machine's Python: what statements answer, and what the database system says of them."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvsnap.plugins.sql.inside.clients import advice
from tvsnap.plugins.sql.inside.sqlite import decimals
from tvsnap.plugins.sql.inside.sqlite.statements import statements
from tvsnap.plugins.sql.inside.sqlite.system import SQLite
from tvsnap.plugins.sql.inside.system import Answer, Column, StatementFailed, SystemFailed, Table

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
def system(tmp_path: Path) -> Iterator[SQLite]:
    """Databases `shop`, which is in use and holds a table, and `world`, which is empty."""
    (tmp_path / "sql.json").write_text('{"database": "shop"}')
    system = SQLite(str(tmp_path / "sqlite"), str(tmp_path / "sql.json"))
    system.initialise()
    for name in ("shop", "world"):
        system.create_database(name)
    with contextlib.closing(sqlite3.connect(tmp_path / "sqlite" / "shop.db")) as connection:
        connection.executescript("CREATE TABLE t (a INTEGER PRIMARY KEY, b UNIQUE); INSERT INTO t VALUES (1, 'x');")
    system.start()
    yield system
    system.stop()


def run(system: SQLite, query: str, database: str = "", timeout: float = 10, max_rows: int = 100) -> Answer:
    return system.run(query, database, timeout, max_rows)


def rows(system: SQLite, query: str, database: str = "") -> list[list[Any]]:
    answer = run(system, query, database)
    assert not answer.error, answer.error
    return answer.results[-1].rows


def changed(system: SQLite, query: str, database: str = "") -> bool:
    before = system.facts()
    run(system, query, database)
    return system.facts() != before


def file_of(system: SQLite, name: str = "shop") -> Path:
    return Path(rows(system, "SELECT file FROM pragma_database_list WHERE name = 'main'", name)[0][0])


# -- answers ----------------------------------------------------------------------------------------------------------


def test_values_are_exact(system: SQLite) -> None:
    found = rows(system, "SELECT 9223372036854775807, 0.1, 1e999, -1e999, 'é', NULL, x'00ff', CAST(x'ff41' AS TEXT)")
    assert found == [[9223372036854775807, 0.1, "Inf", "-Inf", "é", None, {"base64": "AP8="}, {"base64": "/0E="}]]


def test_regular_expressions(system: SQLite) -> None:
    query = "SELECT 'abc' REGEXP '^a.c$', 'b' REGEXP 'a', 12 REGEXP '2', NULL REGEXP 'a'"
    assert rows(system, query) == [[1, 0, 1, None]]
    assert run(system, "SELECT 'a' REGEXP '('").error.startswith("REGEXP '(': missing )")
    assert run(system, "SELECT abs(-9223372036854775808)").error == "integer overflow"


def test_decimals(system: SQLite) -> None:
    query = "SELECT decimal_add('0.1', '0.20'), decimal_sub('1', '1.00'), decimal_mul('-1.10', '2.00'), decimal('1e-3')"
    assert rows(system, query) == [["0.30", "0.00", "-2.20", "0.001"]]
    query = "SELECT decimal_cmp('1', '1.0'), decimal_cmp('-2', '1'), decimal_cmp(NULL, 1), decimal_add(NULL, 1)"
    assert rows(system, query) == [[0, -1, None, None]]
    assert rows(system, "SELECT decimal_add('-0.5', '0.5'), decimal_mul('-0', 5)") == [["0.0", "0"]]
    query = "SELECT decimal_exp('12300'), decimal_exp('-0.0450'), decimal_exp(0), decimal_pow2(-3), decimal_pow2('1')"
    assert rows(system, query) == [["+1.23e+04", "-4.5e-02", "+0.0e+00", "+1.25e-01", None]]
    query = "SELECT decimal_sum(x), decimal_sum(x) FILTER (WHERE x > 5) FROM (SELECT 0.1 x UNION ALL SELECT '1e-20')"
    assert rows(system, query) == [["0.10000000000000000001", "0.00000000000000000001"]]
    assert rows(system, "SELECT decimal_sum(1) WHERE 0") == [[None]]
    most = "9" * 1_000_000
    assert run(system, f"SELECT length(decimal_add('{most}', 0))").results[0].rows == [[1_000_000]]
    assert run(system, f"SELECT decimal_add('{most}', 1)").error == "a decimal has more than 1000000 digits"
    assert run(system, f"SELECT decimal_sum('{most}') FROM (SELECT 1 UNION ALL SELECT 2)").error == (
        "a decimal has more than 1000000 digits"
    )
    assert run(system, "SELECT decimal('1e-9999999')").error == "a decimal has more than 1000000 digits"
    assert run(system, "SELECT decimal_pow2(20001)").error.startswith("decimal_pow2(20001): the exponent must be from")
    assert not changed(system, "SELECT decimal_add(1, 2)")


@pytest.mark.skipif(not hasattr(sqlite3.Connection, "create_window_function"), reason="Python has none before 3.11")
def test_decimals_of_windows(system: SQLite) -> None:
    query = (
        "SELECT decimal_sum(x) OVER (ROWS 1 PRECEDING) FROM (SELECT '0.1' x UNION ALL SELECT '0.20' UNION ALL SELECT 1)"
    )
    assert rows(system, query) == [["0.1"], ["0.30"], ["1.20"]]


def test_all_digits_of_floats_where_the_program_gives_them(system: SQLite, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT decimal(0.1), decimal(2.0), decimal(1e999), decimal(x'3ff8000000000000'), decimal(x'31')"
    monkeypatch.setattr(decimals, "EXPANDED", True)
    assert rows(system, query) == [[str(Decimal.from_float(0.1)), "2", None, "1.5", None]]
    monkeypatch.setattr(decimals, "EXPANDED", False)
    assert rows(system, "SELECT decimal(0.1), decimal(2.0), decimal(1e999), decimal(x'31')") == [
        ["0.1", "2.0", "0", "1"]
    ]


@pytest.mark.parametrize(
    ("name", "query", "error", "said"),
    [
        ("sqlite", ".tables", 'near ".": syntax error', ".tables is a command of the program sqlite3, and no SQL"),
        ("sqlite", "SELECT * FROM generate_series(1, 3)", "no such table: generate_series", "generate_series belongs"),
        ("sqlite", "SELECT sha3(a) FROM t", "no such function: sha3", "sha3 belongs to the"),
        ("sqlite", "... COLLATE decimal", "no such collation sequence: decimal", "decimal belongs to the"),
        (
            "sqlite",
            "SELECT base64(a) FROM t",
            "no such function: base64",
            "base64 belongs to the program sqlite3 (from",
        ),
        (
            "sqlite",
            "CREATE VIRTUAL TABLE v USING csv(x)",
            "no such module: csv",
            "csv is an extension of SQLite, which",
        ),
        ("sqlite", "SELECT * FROM t", "no such table: t", ""),
        ("postgres", "SELECT 1;\n\\dt+ public.*", "syntax error", "\\dt+ is a command of the program psql"),
        ("postgres", "SELECT ' \\d' FROM", "syntax error", ""),
        ("mariadb", "SELECT x \\G", "syntax error", "\\G is a command of the program mariadb"),
        ("mariadb", "source /tmp/a.sql", "syntax error", "source is a command of the program mariadb"),
        ("mariadb", "SELECT source FROM t", "no such column", ""),
    ],
)
def test_what_is_the_clients_business(name: str, query: str, error: str, said: str) -> None:
    assert advice(name, query, error).startswith(said)
    assert bool(advice(name, query, error)) == bool(said)


def test_several_statements_up_to_the_one_that_fails(system: SQLite) -> None:
    answer = run(
        system, "INSERT INTO t(b) VALUES (1), (2); SELECT a FROM t; CREATE TABLE u(x); SELECT * FROM v; SELECT 1"
    )
    assert [result.affected for result in answer.results] == [2, None, None]
    assert [result.columns for result in answer.results] == [None, ["a"], None]
    assert (answer.error, answer.code, answer.unparsed) == (*("statement 4: no such table: v", "SQLITE_ERROR", False),)


@pytest.mark.parametrize(
    ("query", "affected"),
    [
        ("UPDATE t SET b = 2 WHERE a = 7", 0),
        ("WITH x AS (SELECT 1) UPDATE t SET b = 2", 1),
        ("DELETE FROM t", 1),
        ("REPLACE INTO t VALUES (1, 5)", 1),
        ("DROP TABLE t", None),
        ("PRAGMA user_version = 3", None),
        ("BEGIN", None),
        ("ANALYZE", None),
    ],
)
def test_rows_affected(system: SQLite, query: str, affected: int | None) -> None:
    assert [result.affected for result in run(system, query).results] == [affected]


@pytest.mark.parametrize("query", ["SELEC 1", "SELECT 'a", "SELECT (1", "SELECT 1 +; SELECT 2"])
def test_what_cannot_be_read_is_told_apart(system: SQLite, query: str) -> None:
    answer = run(system, query)
    assert answer.error
    assert answer.unparsed
    assert not run(system, f"SELECT 1; {query}").unparsed


def test_a_constraint_and_its_code(system: SQLite) -> None:
    answer = run(system, "INSERT INTO t(b) VALUES ('x')")
    assert answer.error == "UNIQUE constraint failed: t.b"
    assert answer.code.startswith("SQLITE_CONSTRAINT")


def test_only_so_many_rows_are_kept(system: SQLite) -> None:
    answer = run(system, f"{ENDLESS.replace('count(*)', 'i')}; SELECT 1", max_rows=3)
    assert [result.rows for result in answer.results] == [[[1], [2], [3]], [[1]]]
    assert [result.more for result in answer.results] == [True, False]


def test_a_change_that_returns_rows_is_done_to_its_end(system: SQLite) -> None:
    answer = run(system, "INSERT INTO t(b) VALUES (10), (11), (12) RETURNING b", max_rows=1)
    assert (answer.results[0].rows, answer.results[0].more) == ([[10]], True)
    assert rows(system, "SELECT count(*) FROM t") == [[4]]


def test_an_endless_statement_is_cancelled(system: SQLite) -> None:
    run(system, "BEGIN; INSERT INTO t(b) VALUES ('y')")
    began = time.monotonic()
    answer = run(system, ENDLESS, timeout=0.2)
    assert 0.2 <= time.monotonic() - began < 20
    assert (answer.timed_out, answer.code) == (True, "SQLITE_INTERRUPT")
    assert rows(system, "SELECT b FROM t") == [["x"], ["y"]]  # the connection is usable, its transaction open


def test_many_short_statements_are_cancelled(system: SQLite) -> None:
    answer = run(system, "SELECT 1;" * 200_000, timeout=0.2)
    assert answer.timed_out
    assert 0 < len(answer.results) < 200_000


def test_waiting_for_a_lock_ends_with_the_time(system: SQLite) -> None:
    with contextlib.closing(sqlite3.connect(file_of(system), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        answer = run(system, "SELECT * FROM t", timeout=0.3)
        assert 0.2 < time.monotonic() - began < 4.5
        assert (answer.error, answer.timed_out) == ("database is locked; the timeout of 0.3 s has passed", True)
        other.execute("ROLLBACK")
    assert rows(system, "SELECT * FROM t") == [[1, "x"]]
    assert run(system, "PRAGMA busy_timeout", timeout=0.3).results[0].rows == [[5000]]
    assert rows(system, "PRAGMA busy_timeout = 70; PRAGMA busy_timeout") == [[70]]


def test_a_statement_that_rolls_back_says_so(system: SQLite) -> None:
    run(system, "BEGIN")
    answer = run(system, "INSERT OR ROLLBACK INTO t(b) VALUES ('x')")
    assert answer.messages == ["the transaction was rolled back"]


def test_a_typo_makes_no_database(system: SQLite) -> None:
    answer = run(system, "SELECT 1", database="shp")
    assert answer.error.startswith('no such database: "shp"; there are: shop, world; a file ')
    assert "/shp.db would be one (what is attached is named in the statement, as in NAME.TABLE)" in answer.error
    assert answer.unparsed
    assert system.databases() == ["shop", "world"]
    assert run(system, "SELECT 1", database="../sqlite/shop").error


def test_an_empty_folder_says_how_to_make_a_database(tmp_path: Path) -> None:
    system = SQLite(str(tmp_path), str(tmp_path / "none"))
    system.start()
    answer = run(system, "SELECT 1")
    assert answer.error.startswith(f"there is no database: a file {tmp_path}/NAME.db would be one")
    command = answer.error.rpartition("as by: ")[2].replace("NAME", "new")
    subprocess.run(command, shell=True, check=True)
    assert rows(system, "CREATE TABLE t (a); SELECT count(*) FROM t") == [[0]]
    system.stop()


def test_the_temporary_database_is_not_made_by_describing(system: SQLite) -> None:
    system.schema("", "")
    assert "temp" not in {row[1] for row in rows(system, "PRAGMA database_list")}
    assert rows(system, "PRAGMA journal_mode = WAL; PRAGMA wal_checkpoint(TRUNCATE)") == [[0, 0, 0]]
    run(system, "CREATE TEMPORARY TABLE own (a)")
    assert "own" in {table["name"] for table in system.schema("", "")["tables"]}


def test_a_journal_holds_chance(system: SQLite) -> None:
    assert system.alone()
    run(system, "INSERT INTO t VALUES (70, 70)")
    assert system.alone()
    run(system, "BEGIN; INSERT INTO t VALUES (71, 71)")
    assert not system.alone()
    run(system, "COMMIT")
    assert system.alone()
    run(system, "PRAGMA journal_mode = WAL; INSERT INTO t VALUES (72, 72)")
    assert not system.alone()
    run(system, "PRAGMA journal_mode = DELETE")
    assert system.alone()


def test_the_named_database_is_for_one_request(system: SQLite) -> None:
    run(system, "CREATE TABLE w(a)", database="world")
    assert rows(system, "SELECT name FROM sqlite_master WHERE type = 'table'") == [["t"]]
    assert rows(system, "SELECT name FROM sqlite_master", database="world") == [["w"]]


def test_a_file_that_was_replaced_is_opened_again(system: SQLite) -> None:
    path = file_of(system)
    run(system, "CREATE TEMP TABLE mine(a)")
    path.unlink()
    gone = run(system, "SELECT * FROM t")
    assert gone.lost
    assert gone.error.startswith('no such database: "shop"; there are: world')
    system.create_database("shop")
    assert run(system, "SELECT * FROM t").error == "no such table: t"
    with contextlib.closing(sqlite3.connect(path.with_suffix(".new"))) as connection:
        connection.execute("CREATE TABLE t AS SELECT 'new' AS a")
    path.with_suffix(".new").rename(path)
    answer = run(system, "SELECT * FROM t")
    assert (answer.lost, answer.results[0].rows) == (True, [["new"]])


def test_a_file_that_is_no_database(system: SQLite) -> None:
    file_of(system).with_name("junk.db").write_text("hello, this is not a database\n" * 100)
    assert run(system, "SELECT * FROM sqlite_master", database="junk").error == "file is not a database"
    with pytest.raises(StatementFailed, match="file is not a database"):
        system.schema("junk", "")


def test_random_numbers_differ_in_forked_processes(system: SQLite) -> None:
    query = "SELECT random(), hex(randomblob(8)), typeof(random()), length(randomblob(-1)), length(randomblob('x'))"
    before = rows(system, query)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, json.dumps(rows(system, query)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    forked = json.loads(os.read(read, 10_000))
    os.close(read)
    os.close(write)
    here = rows(system, query)
    assert len({before[0][0], forked[0][0], here[0][0]}) == 3
    assert len({before[0][1], forked[0][1], here[0][1]}) == 3
    assert here[0][2:] == ["integer", 1, 1]


# -- what changed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t",
        "SELECT * FROM t WHERE b = 'none'",
        "SELECT * FROM json_each('[1]')",
        "SELECT * FROM pragma_table_info('t')",
        "PRAGMA table_info(t)",
        "PRAGMA foreign_keys",
        "PRAGMA integrity_check",
        "EXPLAIN QUERY PLAN SELECT * FROM t",
        "SELECT last_insert_rowid(), changes(), random()",
        "UPDATE t SET b = 2 WHERE a = 9",
        "DELETE FROM t WHERE a = 9",
        "CREATE TABLE IF NOT EXISTS t(a)",
        "DROP TABLE IF EXISTS nothing",
        "CREATE TABLE t(a)",
        "SELECT nothing",
        "INSERT INTO t(b) VALUES ('x')",
    ],
)
def test_facts_are_the_same(system: SQLite, query: str) -> None:
    assert not changed(system, query)


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO t(b) VALUES (2)",
        "INSERT OR IGNORE INTO t(b) VALUES ('x')",
        "UPDATE t SET b = b",
        "DELETE FROM t",
        "CREATE TABLE u(a)",
        "CREATE TEMP TABLE u(a)",
        "CREATE INDEX i ON t(b, a)",
        "CREATE VIEW v AS SELECT 1",
        "DROP TABLE t",
        "ALTER TABLE t ADD COLUMN c",
        "BEGIN",
        "BEGIN; SELECT * FROM t; COMMIT",
        "SAVEPOINT s; RELEASE s",
        "ATTACH ':memory:' AS m",
        "PRAGMA foreign_keys = ON",
        "PRAGMA user_version = 5",
        "PRAGMA optimize",
        "VACUUM",
        "ANALYZE",
        "SELECT 1; INSERT INTO t(b) VALUES (3); SELECT 1",
    ],
)
def test_facts_differ(system: SQLite, query: str) -> None:
    assert changed(system, query)


def test_the_first_read_in_a_transaction_takes_hold_of_the_database(system: SQLite) -> None:
    assert changed(system, "BEGIN")
    assert not changed(system, "SELECT 1")
    assert changed(system, "SELECT * FROM t")
    assert not changed(system, "SELECT count(*) FROM t")
    assert changed(system, "UPDATE t SET b = 1 WHERE a = 9")  # takes the right to write
    assert changed(system, "ROLLBACK")
    run(system, "BEGIN")
    before = system.facts()
    system.schema("", "")
    assert system.facts() != before


def test_to_get_the_facts_takes_hold_of_nothing(system: SQLite) -> None:
    path = file_of(system)
    run(system, "BEGIN")
    system.facts()
    with contextlib.closing(sqlite3.connect(path, timeout=0)) as other:
        other.execute("INSERT INTO t(b) VALUES ('other')")
        other.commit()  # which a reader would not let pass
    assert rows(system, "SELECT b FROM t") == [["x"], ["other"]]


def test_another_database_that_is_only_read_leaves_the_facts(system: SQLite) -> None:
    assert not changed(system, "SELECT * FROM sqlite_master", database="world")
    assert changed(system, "CREATE TABLE w(a)", database="world")


def test_reads_in_any_order_end_alike(system: SQLite) -> None:
    run(system, "BEGIN; INSERT INTO t(b) VALUES ('y'); CREATE TEMP TABLE mine AS SELECT 1 AS a")
    found = set()
    for query in ("SELECT * FROM mine", "SELECT * FROM t", "PRAGMA table_info(t)", "SELECT * FROM mine, t"):
        run(system, query)
        found.add(system.facts())
    assert len(found) == 1


# -- schema -----------------------------------------------------------------------------------------------------------


def test_schema(system: SQLite) -> None:
    run(
        system,
        "CREATE TABLE child (id INTEGER PRIMARY KEY, t REFERENCES t, n TEXT NOT NULL DEFAULT 'none', twice AS (2));"
        "CREATE INDEX by_n ON child(n, lower(n)); CREATE VIEW names AS SELECT n FROM child;"
        "CREATE VIEW broken AS SELECT * FROM gone; CREATE VIRTUAL TABLE words USING fts5(w); CREATE TEMP TABLE own(a)",
    )
    said = system.schema("", "")
    assert said["database"] == "shop"
    assert [(one["name"], one["kind"]) for one in said["tables"]] == [
        ("broken", "view"),
        ("child", "table"),
        ("names", "view"),
        ("own", "temporary table"),
        ("t", "table"),
        ("words", "virtual table"),
    ]
    assert system.schema("shop", "CHILD")["tables"] == [
        {
            "name": "child",
            "kind": "table",
            "columns": [
                {"name": "id", "type": "INTEGER", "nullable": False},
                {"name": "t", "type": "", "nullable": True},
                {"name": "n", "type": "TEXT", "nullable": False, "default": "'none'"},
                {"name": "twice", "type": "", "nullable": True},
            ],
            "primary_key": ["id"],
            "foreign_keys": [{"columns": ["t"], "table": "t", "references": ["a"]}],
            "indexes": [{"name": "by_n", "columns": ["n", "(expression)"], "unique": False}],
        }
    ]
    with pytest.raises(LookupError, match=r"no such table: nope; there are: broken, child"):
        system.schema("", "nope")
    with pytest.raises(LookupError, match=r'no such database: "nope"; there are: shop, world'):
        system.schema("nope", "")


# -- loading ----------------------------------------------------------------------------------------------------------


def test_a_table_is_made_and_filled(system: SQLite) -> None:
    columns = (
        Column("id", "integer", nullable=False),
        Column("price", "real"),
        Column("day", "date"),
        Column("x", "binary"),
    )
    table = Table("items", columns, [("1", "2.50", "2024-02-29", None), (2, 3, None, b"\0")], ("id",))
    system.load_table("world", table)
    assert rows(system, "SELECT * FROM items", database="world") == [
        [1, 2.5, "2024-02-29", None],
        [2, 3.0, None, {"base64": "AA=="}],
    ]
    with pytest.raises(SystemFailed, match="row 2: UNIQUE constraint failed"):
        system.load_table("world", Table("items", columns, [(3, 1, None, None), (1, 1, None, None)]))
    assert rows(system, "SELECT count(*) FROM items", database="world") == [[2]]


def test_a_script_is_run_by_the_command_line_client(system: SQLite, tmp_path: Path) -> None:
    script = tmp_path / "dump.sql"
    script.write_text(".bail on\nCREATE TABLE w(a);\nINSERT INTO w VALUES (1);\n")
    system.load_script(str(script), "world")
    assert rows(system, "SELECT * FROM w", database="world") == [[1]]
    script.write_text("INSERT INTO w VALUES (2);\nINSERT INTO gone VALUES (1);\nINSERT INTO w VALUES (3);\n")
    with pytest.raises(SystemFailed, match=r"near line 2.*no such table: gone"):
        system.load_script(str(script), "world")
    assert rows(system, "SELECT * FROM w", database="world") == [[1], [2]]


def test_a_sqlite_file_is_taken_over(system: SQLite, tmp_path: Path) -> None:
    source = tmp_path / "source.sqlite"
    with contextlib.closing(sqlite3.connect(source)) as connection:
        connection.executescript("PRAGMA journal_mode = WAL; CREATE TABLE s(a); INSERT INTO s VALUES (x'00')")
    system.adopt(str(source), "world")
    assert rows(system, "PRAGMA journal_mode; SELECT * FROM s", database="world") == [[{"base64": "AA=="}]]
    assert rows(system, "PRAGMA journal_mode", database="world") == [["delete"]]
    with pytest.raises(SystemFailed, match='"world" holds tables already'):
        system.adopt(str(source), "world")
    source.write_bytes(b"no database at all" * 100)
    system.create_database("third")
    with pytest.raises(SystemFailed, match="not a sound SQLite database"):
        system.adopt(str(source), "third")


# -- statements of a text ---------------------------------------------------------------------------------------------

_WORDS = ("CREATE", "TEMP", "TRIGGER", "x", "END", "BEGIN", "EXPLAIN", "QUERY", "PLAN", "SELECT", "é", "1")
_QUOTED = ("'a;b'", "'it''s;'", '"q;"', "`b;`", "[c;]", "-- ;\n", "/* ; */")
_PIECES = st.sampled_from((*_WORDS, *_QUOTED, ";", ";", " ", "\n", "/", "*", "-", "'", "."))


@given(st.lists(_PIECES, max_size=25).map(" ".join))
def test_statements_end_where_sqlite_says(text: str) -> None:
    expected, begin = [], 0
    for index, character in enumerate(text, 1):
        if character == ";" and sqlite3.complete_statement(text[begin:index]):
            expected.append(text[begin:index])
            begin = index
    expected.append(text[begin:])
    found = list(statements(text))
    assert found == [one for one in expected if one in found]
    # What is left out says nothing: SQLite runs it and does nothing.
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for one in expected:
            if one not in found:
                assert connection.execute(one).description is None
                assert connection.total_changes == 0


def test_a_long_text_is_taken_apart_in_one_pass() -> None:
    text = (
        "INSERT INTO t VALUES ('"
        + "it''s; " * 200_000
        + "');"
        + "SELECT 1;" * 50_000
        + "CREATE TRIGGER"
        + ";" * 200_000
    )
    began = time.process_time()
    assert len(list(statements(text))) == 50_002
    assert time.process_time() - began < 10
