"""What reads leave behind: nothing that a later statement could see, nor does it matter whether anybody looked on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.sql_lab import SqlLab
from tests.sql_images import Client, ask, seen
from tvsnap import Cache
from tvsnap.images import Image
from tvsnap.model.calls import ToolCall

LOOK = "LOOK"

_FULL_PAGE = {
    "postgres": "INSERT INTO w SELECT n, repeat('x', 150) FROM generate_series(1, 43) n",
    "mariadb": "INSERT INTO w SELECT seq, REPEAT('x', 150) FROM seq_1_to_43",
}

# Changes, LOOK where reads come or do not, the read, and what is asked in the end.
HISTORIES: dict[str, dict[str, tuple[list[str], str, str]]] = {
    "sqlite": {
        "counters": (
            ["INSERT INTO items VALUES (70, 'x', 1)", LOOK, "DELETE FROM items WHERE id = 70", LOOK],
            "SELECT * FROM items WHERE id > 70",
            "SELECT changes(), total_changes(), last_insert_rowid()",
        ),
    },
    "postgres": {
        "place of later rows": (
            [
                "CREATE TABLE w (id integer, pad text)",
                _FULL_PAGE["postgres"],
                "DELETE FROM w WHERE id % 2 = 0",
                LOOK,
                "INSERT INTO w SELECT n, repeat('y', 150) FROM generate_series(100, 110) n",
            ],
            "SELECT count(*) FROM w",
            "SELECT ctid::text, id FROM w",
        ),
        "begin of a scan": (
            ["CREATE TABLE w AS SELECT n, repeat('x', 500) AS pad FROM generate_series(1, 12000) n", LOOK],
            "SELECT count(pad) FROM (SELECT pad FROM w LIMIT 5000) AS a",
            "CREATE TEMPORARY TABLE c AS SELECT n FROM w LIMIT 1; SELECT n FROM c",
        ),
        "statistics": (
            [LOOK],
            "SELECT count(*) FROM items",
            "SELECT seq_scan, seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'items'",
        ),
    },
    "mariadb": {
        "statistics": (
            ["CREATE TABLE w (id INTEGER, pad VARCHAR(200))", _FULL_PAGE["mariadb"], LOOK],
            "SELECT COUNT(*) FROM w",
            "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler%' OR Variable_name = 'Com_select'",
        ),
        "diagnostics": (
            ["UPDATE items SET price = price", LOOK],
            "SELECT SQL_CALC_FOUND_ROWS 1 / 0, id FROM items LIMIT 1",
            "SELECT FOUND_ROWS(), ROW_COUNT(), @@warning_count; SHOW WARNINGS",
        ),
    },
}
CASES = [(system, case) for system, cases in HISTORIES.items() for case in cases]
PER_CASE = pytest.mark.parametrize(("sql_system", "case"), CASES, indirect=["sql_system"], scope="session")

ENDED = {
    "postgres": ("SELECT pg_backend_pid()", 'psql -X -d shop -c "SELECT pg_terminate_backend({}, 60000)"'),
    "mariadb": (
        "SELECT CONNECTION_ID()",
        'mariadb shop -e "KILL {0}"; while mariadb -N -B -e "SHOW PROCESSLIST" | grep -qw "^{0}"; do sleep 0.05; done',
    ),
}
"""How a session asks for its number, and how another client ends it, and waits until it is gone."""

WRITER = {
    "sqlite": "sqlite3 /srv/sqlite/shop.db 'DELETE FROM items WHERE id = 3' 2>&1 | grep -o locked; true",
    "postgres": "psql -X -d shop -c 'SET lock_timeout = 99' -c 'TRUNCATE items CASCADE' 2>&1 | grep -o timeout",
    "mariadb": "mariadb shop -e 'SET lock_wait_timeout = 1; ALTER TABLE items ADD x INTEGER' 2>&1 | grep -o timeout",
}


def changes(client: Client, query: str) -> bool:
    """Makes a call; returns whether it counts as a change."""
    before = client.environment.observe(client.sandbox)
    client.sql(query)
    after = client.environment.observe(client.sandbox)
    return not client.environment.unchanged(ToolCall("sql", {"query": query}), before, after)


@PER_CASE
def test_a_read_leaves_no_trace(sql_lab: SqlLab, sql_system: str, case: str) -> None:
    steps, look, last = HISTORIES[sql_system][case]
    found = []
    for looks in (0, 7):
        client = sql_lab.client()
        for step in steps:
            if step != LOOK:
                client.do(step)
            for _ in range(looks * (step == LOOK)):
                assert not changes(client, look)
        found.append(client.sql(last))
    assert found[0] == found[1]


@pytest.mark.parametrize("sql_system", ["postgres"], indirect=True, scope="session")
def test_a_read_that_cleans_up_a_temporary_table_is_a_change(sql_lab: SqlLab) -> None:
    """No setting keeps it from that."""
    client = sql_lab.client()
    client.do("CREATE TEMPORARY TABLE w (id integer, pad text)", "CREATE VIEW over AS SELECT * FROM w")
    assert not changes(client, "SELECT count(*) FROM w")
    client.do(_FULL_PAGE["postgres"], "DELETE FROM w WHERE id % 2 = 0")
    assert changes(client, "SELECT count(*) FROM over")
    assert changes(client, "SELECT count(*) FROM w")
    assert not changes(client, "SELECT count(*) FROM items")


@pytest.mark.parametrize("sql_system", list(ENDED), indirect=True, scope="session")
def test_an_ended_session_says_the_same_whether_or_not_it_was_looked_at(sql_lab: SqlLab, sql_system: str) -> None:
    asked, command = ENDED[sql_system]
    said: list[Any] = []
    for looked in (True, False):
        client = sql_lab.client()
        client.do("BEGIN")
        ((identity,),) = client.rows(asked)
        assert client.sandbox.exec(command.format(identity), timeout=60).exit_code == 0
        if looked:
            client.environment.observe(client.sandbox)
        said.append([client.sql("SELECT 1") for _ in range(2)])
    assert said[0] == said[1]
    assert "error" in said[0][0]
    assert said[0][1]["rows"] == [[1]]


def test_a_read_in_a_transaction_locks_others_out_in_a_fork_too(
    sql_cache: Cache, sql_image: Image, sql_system: str
) -> None:
    """Also one that reads no column."""
    with sql_cache.rollout(sql_image) as first, sql_cache.rollout(sql_image) as second:
        said = []
        for rollout in (first, second):
            ask(rollout, "BEGIN")
            assert seen(rollout, "SELECT count(*) FROM items")
            rollout.sandbox()  # its own: the next rollout needs another
            said.append(rollout.sandbox().exec(WRITER[sql_system], timeout=30).output)
        assert said[0] == said[1] != b""


def test_generator_state_is_a_state(sql_lab: SqlLab, sql_system: str) -> None:
    """Who has set the beginning of the random numbers goes on in the row of them."""
    if sql_system == "sqlite":
        return  # it has no such beginning
    seed, draw = {
        "postgres": ("SELECT setseed(0.5)", "SELECT random()"),
        "mariadb": ("SET rand_seed1 = 7, rand_seed2 = 8", "SELECT RAND()"),
    }[sql_system]
    rows = []
    for _ in range(2):
        client = sql_lab.client()
        client.do(seed)
        assert changes(client, draw)
        rows.append([client.rows(draw) for _ in range(3)])
    assert rows[0] == rows[1]
    assert len({str(row) for row in rows[0]}) == 3
