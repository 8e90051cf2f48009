"""A session goes on in a fork as it stood, and then its own way; a server's death in one fork is no other's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conformance.sql_cases import HELD
from tests.conformance.sql_lab import SqlLab
from tests.sql_images import KILL_SERVER, KILL_SESSION, SYSTEMS, Client

HELD_CASES = [(system, what) for system in SYSTEMS for what in HELD[system]]
KILLS = [(system, who) for system in SYSTEMS for who in ("server", "session") if (system, who) != ("sqlite", "server")]


@pytest.mark.parametrize(("sql_system", "what"), HELD_CASES, indirect=["sql_system"], scope="session")
def test_what_a_session_holds(sql_lab: SqlLab, client: Client, sql_system: str, what: str) -> None:
    held = HELD[sql_system][what]
    client.do(*held.setup)
    assert client.rows(held.look) == held.seen
    going = [*sql_lab.forks(client, 2), client]
    for one in going:
        assert one.rows(held.look) == held.seen
    for number, one in enumerate(going, 1):
        one.do(held.step.format(n=number))
    for number, one in enumerate(going, 1):
        assert one.rows(held.look) == held.after(number)


def test_a_fork_of_a_fork(sql_lab: SqlLab, client: Client) -> None:
    client.do("CREATE TABLE t (n INTEGER)", "BEGIN", "INSERT INTO t VALUES (0)")
    going, depth = client, 5
    for number in range(1, depth + 1):
        (going,) = sql_lab.forks(going, 1)
        going.do(f"INSERT INTO t VALUES ({number})")
    going.do("COMMIT")
    assert going.rows("SELECT n FROM t ORDER BY n") == [[n] for n in range(depth + 1)]
    client.do("COMMIT")
    assert client.rows("SELECT n FROM t") == [[0]]


def test_many_forks_write_and_none_sees_anothers_rows(sql_lab: SqlLab, client: Client) -> None:
    client.do("CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (-1)")
    going = sql_lab.forks(client, 8)

    def work(number: int) -> list[list[Any]]:
        one = going[number]
        for step in range(10):
            one.do(f"INSERT INTO t VALUES ({number * 100 + step})")
        one.do(f"UPDATE items SET name = 'of {number}' WHERE id = 1")
        return [*one.rows("SELECT n FROM t ORDER BY n"), *one.rows("SELECT name FROM items WHERE id = 1")]

    with ThreadPoolExecutor(len(going)) as threads:
        found = list(threads.map(work, range(len(going))))
    for number, rows in enumerate(found):
        assert rows == [[-1], *([number * 100 + step] for step in range(10)), [f"of {number}"]]
    assert client.rows("SELECT n FROM t") == [[-1]]


def test_the_console_in_a_fork_sees_what_was_committed(sql_lab: SqlLab, client: Client) -> None:
    client.do("CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1)", "BEGIN", "INSERT INTO t VALUES (2)")
    one, other = sql_lab.forks(client, 2)
    assert one.console("SELECT n FROM t").split() == ["1"]
    other.do("COMMIT")
    assert other.console("SELECT n FROM t ORDER BY n").split() == ["1", "2"]
    one.do("ROLLBACK")
    one.console("INSERT INTO t VALUES (7)")
    assert one.rows("SELECT n FROM t ORDER BY n") == [[1], [7]]
    assert client.rows("SELECT n FROM t ORDER BY n") == [[1], [2]]


@pytest.mark.parametrize(("sql_system", "who"), KILLS, indirect=["sql_system"], scope="session")
def test_killed_amid_a_transaction(sql_lab: SqlLab, client: Client, sql_system: str, who: str) -> None:
    """What was committed is there after a death, what was open is not; other forks do not notice."""
    client.do("CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1)")
    client.do("BEGIN", "INSERT INTO t VALUES (2)")
    killed, other = sql_lab.forks(client, 2)
    kill = KILL_SERVER[sql_system] if who == "server" else KILL_SESSION
    assert killed.sandbox.exec(kill, timeout=60).exit_code == 0

    said = killed.sql("SELECT n FROM t")
    assert "lost" in said["error"]
    assert "rows" not in said
    assert killed.rows("SELECT n FROM t ORDER BY n") == [[1]]
    killed.do("INSERT INTO t VALUES (3)")
    assert killed.rows("SELECT n FROM t ORDER BY n") == [[1], [3]]
    assert killed.rows("SELECT name FROM parts", database="spare") == [["bolt"]]

    for one in (other, client):
        assert one.rows("SELECT n FROM t ORDER BY n") == [[1], [2]]
    other.do("COMMIT")
    client.do("ROLLBACK")
    assert other.rows("SELECT n FROM t ORDER BY n") == [[1], [2]]
    assert client.rows("SELECT n FROM t ORDER BY n") == [[1]]
    (again,) = sql_lab.forks(killed, 1)
    assert again.rows("SELECT n FROM t ORDER BY n") == [[1], [3]]


def test_killed_and_forked_before_anyone_noticed(sql_lab: SqlLab, client: Client, sql_system: str) -> None:
    client.do("CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1)")
    assert client.sandbox.exec(KILL_SERVER[sql_system], timeout=60).exit_code == 0
    (fork,) = sql_lab.forks(client, 1)
    for one in (fork, client):
        assert "lost" in one.error("SELECT n FROM t")
        assert one.rows("SELECT n FROM t") == [[1]]


def test_nothing_of_a_dead_session_is_left(client: Client, sql_system: str) -> None:
    """A session that was given up is replaced, not joined by another."""
    for _ in range(3):
        client.sandbox.exec(KILL_SERVER[sql_system], timeout=60)
        client.sql("SELECT 1")
        client.do("CREATE TABLE u (n INTEGER)", "DROP TABLE u")
    sessions = [one for one in client.sandbox.processes() if one.command == "python3"]
    assert len(sessions) == 1, client.sandbox.processes()


@pytest.mark.parametrize("sql_system", ["postgres"], indirect=True, scope="session")
def test_a_session_has_the_same_process_id_however_slow_the_start(sql_lab: SqlLab, sql_system: str) -> None:
    """Whoever is refused by a server that is starting takes a number, too."""

    def start(_: int) -> list[list[Any]]:
        client = Client.of(sql_lab.start())
        client.environment.prepare(client.sandbox)
        return client.rows("SELECT pg_backend_pid()")

    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(start, range(16)))
    assert ids == [ids[0]] * 16
