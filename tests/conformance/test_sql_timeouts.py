"""Statements that take too long are cancelled in the system; the connection goes on by the system's own rules."""

from __future__ import annotations

import json
import re
import time

import pytest

from tests.conformance.helpers import eventually
from tests.conformance.sql_lab import SqlLab
from tests.sql_images import SYSTEMS, Client
from tvsnap.model.calls import ToolResult

SLOW = {
    "sqlite": {
        "endless": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT COUNT(*) FROM r",
        "in an update": "UPDATE items SET price = (WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
        "SELECT COUNT(*) FROM r)",
    },
    "postgres": {
        "asleep": "SELECT pg_sleep(60)",
        "endless": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT COUNT(*) FROM r",
        "in a function": "DO $$ BEGIN LOOP END LOOP; END $$",
    },
    "mariadb": {
        "asleep": "DO SLEEP(60)",
        "endless": "SELECT COUNT(*) FROM seq_1_to_100000 a, seq_1_to_100000 b, seq_1_to_100000 c WHERE a.seq > b.seq",
        "in a function": "SELECT BENCHMARK(100000000000, MD5('x'))",
    },
}
SLOW_CASES = [(system, what) for system in SYSTEMS for what in SLOW[system]]

# What a cancelled statement leaves of the transaction that it was in: of rows 1 and 2, which are there after COMMIT.
AFTER_CANCEL = {"sqlite": [[1], [2]], "postgres": [], "mariadb": [[1], [2]]}

LOCKER = {
    "sqlite": "BEGIN EXCLUSIVE;\nINSERT INTO items VALUES (50, 'x', 1);\n.shell touch /tmp/locked\n.shell sleep 1000\n",
    "postgres": "BEGIN; LOCK TABLE items;\n\\! touch /tmp/locked\n\\! sleep 1000\n",
    "mariadb": "LOCK TABLES items WRITE;\nsystem touch /tmp/locked\nsystem sleep 1000\n",
}
CLIENT = {"sqlite": "sqlite3 /srv/sqlite/shop.db", "postgres": "psql -X -q -d shop", "mariadb": "mariadb shop"}


def timed_out(client: Client, query: str, seconds: float = 0.4) -> ToolResult:
    """Runs a query that must exceed its time, and not by much."""
    began = time.monotonic()
    result = client.call("sql", query=query, timeout=seconds)
    assert result.timed_out, (query, result)
    assert result.exit_code is None
    assert time.monotonic() - began < seconds + 25, query
    assert json.loads(result.output)["error"], result
    return result


def processes(client: Client) -> bytes:
    """Returns the state and the command line of each process, one a line."""
    return client.sandbox.exec("ps -eo stat,args", timeout=60).output


@pytest.mark.parametrize(("sql_system", "what"), SLOW_CASES, indirect=["sql_system"], scope="session")
def test_a_slow_statement_is_cancelled(sql_lab: SqlLab, client: Client, sql_system: str, what: str) -> None:
    client.do("CREATE TEMPORARY TABLE w (n INTEGER)")
    timed_out(client, SLOW[sql_system][what])
    assert client.rows("SELECT COUNT(*) FROM w") == [[0]], "the connection is not the same"
    assert client.rows("SELECT name, price FROM items WHERE id = 1")[0][0] == "apple"
    (fork,) = sql_lab.forks(client, 1)
    assert fork.rows("SELECT COUNT(*) FROM w") == [[0]]
    eventually(lambda: re.search(rb"^R.*(postgres|mariadbd|sql\.pyz)", processes(fork), re.MULTILINE) is None)


def test_a_call_has_its_own_time_too(client: Client, sql_system: str) -> None:
    result = client.call("sql", within=0.4, query=SLOW[sql_system]["endless"], timeout=30)
    assert result.timed_out
    assert result.duration < 20
    assert client.rows("SELECT 1") == [[1]]


def test_a_transaction_after_a_cancelled_statement(client: Client, sql_system: str) -> None:
    client.do("CREATE TABLE t (n INTEGER)", "BEGIN", "INSERT INTO t VALUES (1)")
    timed_out(client, SLOW[sql_system]["endless"])
    said = client.sql("INSERT INTO t VALUES (2)")
    assert ("error" in said) == (sql_system == "postgres"), said
    client.sql("COMMIT")
    assert client.rows("SELECT n FROM t ORDER BY n") == AFTER_CANCEL[sql_system]


def test_what_came_before_a_slow_statement_is_returned(client: Client, sql_system: str) -> None:
    result = timed_out(client, f"SELECT 1 AS one; {SLOW[sql_system]['endless']}; SELECT 3 AS three", 5.0)
    assert json.loads(result.output)["results"] == [{"columns": ["one"], "rows": [[1]]}]
    assert client.rows("SELECT 4") == [[4]]


def test_a_lock_that_another_client_holds(client: Client, sql_system: str) -> None:
    client.sandbox.write_file("/tmp/lock.sql", LOCKER[sql_system].encode())
    started = f"(setsid {CLIENT[sql_system]} < /tmp/lock.sql > /tmp/lock.log 2>&1 & echo $! > /tmp/lock.pid); "
    waited = "for i in $(seq 300); do [ -e /tmp/locked ] && exit 0; sleep 0.1; done; cat /tmp/lock.log; exit 1"
    outcome = client.sandbox.exec(started + waited, timeout=60)
    assert outcome.exit_code == 0, outcome.output
    timed_out(client, "UPDATE items SET price = 5 WHERE id = 1", 0.6)
    assert client.rows("SELECT 1") == [[1]]
    assert client.sandbox.exec("kill -9 -$(cat /tmp/lock.pid) || pkill -9 -f lock.sql", timeout=60).exit_code == 0
    client.do("UPDATE items SET price = 6 WHERE id = 1")
    assert client.rows("SELECT COUNT(*) FROM items WHERE price = 6") == [[1]]
