"""Which calls lead to another state and which do not; what is left to chance is shared as a state, not as a value."""

from __future__ import annotations

import json
import random
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conformance.sql_cases import SERIES
from tests.conformance.sql_steps import READS, STEPS
from tests.sql_images import SYSTEMS, ask, seen
from tvsnap import Cache, ToolResult
from tvsnap.engine.keeping.policy import Costs
from tvsnap.images import Image
from tvsnap.rollout import Rollout

GROUPS = [(system, group) for system in SYSTEMS for group in STEPS[system]]

CHANCE: dict[str, list[str]] = {
    "sqlite": [
        "SELECT random()",
        "SELECT hex(randomblob(8))",
        "SELECT strftime('%f', 'now'), random()",
        "SELECT name FROM items ORDER BY random()",
    ],
    "postgres": [
        "SELECT random()",
        "SELECT gen_random_uuid()",
        "SELECT now()",
        "SELECT clock_timestamp()",
        "SELECT name FROM items WHERE now() > '2020-01-01' ORDER BY random()",
    ],
    "mariadb": [
        "SELECT RAND()",
        "SELECT UUID()",
        "SELECT NOW(6)",
        "SELECT SYSDATE(6)",
        "SELECT name FROM items WHERE CURRENT_TIMESTAMP > '2020-01-01' ORDER BY RAND()",
    ],
}
RANDOM = {"sqlite": "SELECT random()", "postgres": "SELECT random()", "mariadb": "SELECT RAND()"}
RETURNED = {
    "sqlite": "INSERT INTO items VALUES (50, 'x', 1) RETURNING random()",
    "postgres": "EXPLAIN ANALYZE INSERT INTO items VALUES (50, 'x', 1)",
    "mariadb": "ANALYZE INSERT INTO items VALUES (50, 'x', 1)",
}
STAMP = {
    "sqlite": "INSERT INTO stamps VALUES (strftime('%Y-%m-%d %H:%M:%f', 'now') || random())",
    "postgres": "INSERT INTO stamps VALUES (clock_timestamp()::text)",
    "mariadb": "INSERT INTO stamps VALUES (SYSDATE(6))",
}


def begin(cache: Cache, image: Image) -> Rollout:
    """Begins a rollout, and takes it to a state that no other test comes to."""
    rollout = cache.rollout(image)
    rollout.call("bash", {"command": f": {secrets.token_hex()}; mark={secrets.token_hex()}"})
    return rollout


def make(rollout: Rollout, what: str) -> ToolResult:
    """Makes the call that a step stands for."""
    if what.startswith("$ "):
        result = rollout.call("bash", {"command": what[2:]})
        assert result.exit_code == 0, (what, result)
        return result
    if what == "schema":
        return rollout.call("schema", {})
    return ask(rollout, what)


@pytest.mark.parametrize(("sql_system", "group"), GROUPS, indirect=["sql_system"], scope="session")
def test_what_changes_the_state(sql_cache: Cache, sql_image: Image, sql_system: str, group: str) -> None:
    wrong = []
    with begin(sql_cache, sql_image) as rollout:
        for step in STEPS[sql_system][group]:
            before = rollout.state
            result = make(rollout, step.query)
            failed = "error" in json.loads(result.output) if not step.query.startswith("$ ") else False
            assert failed == step.fails, (step, result.output)
            if step.changed is not None and (rollout.state != before) != step.changed:
                wrong.append(step)
        assert not rollout.private
    assert not wrong


@pytest.mark.parametrize("seed", range(3))
def test_reads_lead_back_in_any_order(sql_cache: Cache, sql_image: Image, sql_system: str, seed: int) -> None:
    """In a state with versions of rows to be cleaned up, which reads do."""
    queries = READS[sql_system]
    order = random.Random(seed).sample(queries * 2, len(queries) * 2)
    with begin(sql_cache, sql_image) as rollout:
        ask(rollout, f"CREATE TABLE big AS {SERIES[sql_system].format(2000)}")
        for number in range(5):
            ask(rollout, f"UPDATE big SET n = n + {number}")
        ask(rollout, "UPDATE items SET price = 9 WHERE id = 2")
        state = rollout.state
        said: dict[str, str] = {}
        for query in ["SELECT SUM(n), COUNT(*) FROM big", *order, "SELECT MAX(n) FROM big WHERE n % 3 = 0"]:
            output = make(rollout, query).output
            assert rollout.state == state, (query, output)
            assert said.setdefault(query, output) == output, query
        assert seen(rollout, "SELECT id FROM items WHERE price = 9") == [[2]]


def test_rollouts_meet_after_reads_in_another_order(sql_cache: Cache, sql_image: Image, sql_system: str) -> None:
    queries = READS[sql_system]
    marked = {"command": f"mark={secrets.token_hex()}"}
    added = "INSERT INTO items VALUES (40, 'fig', 1)"
    found: list[tuple[str, dict[str, str]]] = []
    for order in (queries, queries[::-1], queries[::2] + queries[1::2]):
        with sql_cache.rollout(sql_image) as rollout:
            rollout.call("bash", marked)
            said = {query: make(rollout, query).output for query in order}
            ask(rollout, added)
            said |= {query: make(rollout, query).output for query in order[::-1]}
            found.append((rollout.state, said))
    assert found[0] == found[1] == found[2]


def test_reads_in_an_open_transaction_lead_back(sql_cache: Cache, sql_image: Image, sql_system: str) -> None:
    with begin(sql_cache, sql_image) as rollout:
        ask(rollout, "BEGIN")
        ask(rollout, "INSERT INTO items VALUES (40, 'fig', 1)")
        seen(rollout, "SELECT COUNT(*) FROM items, orders")  # which may lock the tables against being altered
        state = rollout.state
        for query in ("SELECT COUNT(*) FROM items", "SELECT * FROM orders", "SELECT name FROM items WHERE id = 40"):
            assert seen(rollout, query)
            assert rollout.state == state, query


@pytest.mark.parametrize("sql_system", ["sqlite"], indirect=True, scope="session")
def test_a_lock_that_a_read_takes_is_seen(sql_cache: Cache, sql_image: Image, sql_system: str) -> None:
    """SQLite's lock keeps other processes from writing, though the session says nothing of it."""
    with begin(sql_cache, sql_image) as rollout:
        states = []
        for query in ("BEGIN", "SELECT COUNT(*) FROM items", "SELECT COUNT(*) FROM items"):
            ask(rollout, query)
            states.append(rollout.state)
    assert states[0] != states[1] == states[2]


def test_what_the_terminal_writes_is_seen_in_the_session(sql_cache: Cache, sql_image: Image, sql_system: str) -> None:
    step = STEPS[sql_system]["terminal"][-2]
    with begin(sql_cache, sql_image) as rollout:
        assert seen(rollout, "SELECT COUNT(*) FROM items WHERE id = 20") == [[0]]
        make(rollout, step.query)
        assert seen(rollout, "SELECT COUNT(*) FROM items WHERE id = 20") == [[1]]


def test_chance_is_drawn_anew_and_leads_back(sql_cache: Cache, sql_image: Image, sql_system: str) -> None:
    with begin(sql_cache, sql_image) as rollout:
        state = rollout.state
        for query in CHANCE[sql_system]:
            results = [ask(rollout, query) for _ in range(3)]
            assert [result.source for result in results] == ["executed"] * 3, query
            assert rollout.state == state, query
            assert not rollout.private
            if "ORDER BY" not in query:
                assert len({result.output for result in results}) == 3, query
        assert ask(rollout, "SELECT 'random()' AS now").source == "executed"
        assert ask(rollout, "SELECT 'random()' AS now").source == "hit"


def test_forks_of_one_state_do_not_draw_the_same(sql_cache: Cache, sql_image: Image, sql_system: str) -> None:
    marked = {"command": f"mark={secrets.token_hex()}"}
    rollouts = [sql_cache.rollout(sql_image) for _ in range(3)]
    drawn = []
    for rollout in rollouts:  # each keeps its sandbox, so that the next one needs another
        rollout.call("bash", marked)
        drawn += [seen(rollout, RANDOM[sql_system])[0][0] for _ in range(2)]
    for rollout in rollouts:
        rollout.close()
    assert len(set(drawn)) == 6


def test_what_chance_wrote_is_kept(
    sql_cache: Cache, sql_image: Image, sql_system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay would write something else, so the state is snapshotted at once, and all rollouts see the same."""
    monkeypatch.setattr(Costs, "pause_s", 1e6)  # agents think for longer than any checkpoint takes
    unique = f"CREATE TABLE stamps (at VARCHAR(60) DEFAULT '{secrets.token_hex(4)}')"
    found: list[Any] = []
    with sql_cache.rollout(sql_image) as first:
        ask(first, unique)
        assert ask(first, STAMP[sql_system]).source == "executed"
        state = first.state
        found.append(seen(first, "SELECT at FROM stamps"))
        first.sandbox()  # its own from now on: others cannot have it
        for number in range(2):
            with sql_cache.rollout(sql_image) as other:
                ask(other, unique)
                assert ask(other, STAMP[sql_system]).source == "hit"
                assert other.state == state
                found.append(seen(other, f"SELECT at FROM stamps WHERE 1 < {number + 2}"))
                assert not other.private
    assert found[0] == found[1] == found[2]
    assert state in {snapshot.state for snapshot in sql_cache.graph.snapshots()}


def test_a_change_whose_value_is_left_to_chance_is_the_rollouts_own(
    sql_cache: Cache, sql_image: Image, sql_system: str
) -> None:
    marked = {"command": f"mark={secrets.token_hex()}"}
    for _ in range(2):
        with sql_cache.rollout(sql_image) as rollout:
            rollout.call("bash", marked)
            before = rollout.state
            assert ask(rollout, RETURNED[sql_system]).source == "executed"
            assert rollout.state != before
            assert rollout.private
            assert seen(rollout, "SELECT COUNT(*) FROM items WHERE id = 50") == [[1]]


@pytest.mark.parametrize("seconds", ["of the query", "of the call"])
def test_a_timeout_of_a_busy_machine_is_nobodys_value(
    sql_cache: Cache, sql_image: Image, sql_system: str, seconds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tvsnap.engine.execution.executor.held_up", lambda result, load: "was held up")
    marked = {"command": f"mark={secrets.token_hex()}"}
    slow = f"SELECT COUNT(*) FROM ({SERIES[sql_system].format(1_000_000)}) a, ({SERIES[sql_system].format(999_999)}) b"
    for _ in range(2):
        with sql_cache.rollout(sql_image) as rollout:
            rollout.call("bash", marked)
            ask(rollout, "CREATE TEMPORARY TABLE w (n INTEGER)")
            own = {"timeout": 0.3} if seconds == "of the query" else {}
            result = rollout.call("sql", {"query": slow, **own}, timeout=30.0 if own else 0.3)
            assert result.timed_out
            assert result.source == "executed"
            assert rollout.unshared
            assert seen(rollout, "SELECT COUNT(*) FROM w") == [[0]]


def test_rollouts_side_by_side_see_their_own(sql_cache: Cache, sql_image: Image) -> None:
    marked = {"command": f"mark={secrets.token_hex()}"}

    def work(number: int) -> list[list[Any]]:
        with sql_cache.rollout(sql_image) as rollout:
            rollout.call("bash", marked)
            ask(rollout, "CREATE TABLE t (n INTEGER)")
            ask(rollout, "BEGIN")
            ask(rollout, f"INSERT INTO t VALUES ({number % 4})")
            ask(rollout, "COMMIT")
            return seen(rollout, "SELECT n FROM t")

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(8))) == [[[number % 4]] for number in range(8)]


def test_a_checkpoint_is_no_change(sql_cache: Cache, sql_image: Image) -> None:
    """Nor is what it makes the server do: else each call after one would seem to change something."""
    with begin(sql_cache, sql_image) as rollout:
        make(rollout, "INSERT INTO items VALUES (20, 'lime', 1)")
        live, _ = rollout._engine._own.acquire(rollout._engine._cursor.at)
        observe = rollout._engine.recipe.environment.observe
        before = observe(live.sandbox)
        live.sandbox.checkpoint()
        assert observe(live.sandbox) == before
        live.sandbox.run("ls /", timeout=60)
        assert observe(live.sandbox) == before


TIMED = {
    "postgres": [
        (
            ["SET idle_in_transaction_session_timeout = '{0}s'", "BEGIN", "DELETE FROM items"],
            "SELECT count(*) FROM items",
        ),
        (["SET idle_session_timeout = '{0}s'"], "SELECT count(*) FROM items"),
        (["BEGIN", "SET LOCAL idle_in_transaction_session_timeout = '{0}s'"], "SELECT count(*) FROM items"),
    ],
    "mariadb": [
        (
            [
                "CREATE TABLE told (n INTEGER)",
                "CREATE EVENT e ON SCHEDULE AT CURRENT_TIMESTAMP + INTERVAL {0} SECOND DO INSERT INTO told VALUES (1)",
                "SET GLOBAL event_scheduler = ON",
            ],
            "SELECT count(*) FROM told",
        ),
        (["SET @a = 5", "SET SESSION wait_timeout = {0}"], "SELECT @a"),
        (["SET SESSION idle_transaction_timeout = {0}", "BEGIN", "DELETE FROM items"], "SELECT count(*) FROM items"),
    ],
}
"""Statements after which the system does something by itself after some seconds, and one that tells whether it did."""
TIMED_CASES = [(system, *case) for system, cases in TIMED.items() for case in cases]


@pytest.mark.parametrize(("sql_system", "steps", "last"), TIMED_CASES, indirect=["sql_system"], scope="session")
def test_what_a_system_does_after_some_time(
    sql_cache: Cache, sql_image: Image, sql_system: str, steps: list[str], last: str
) -> None:
    """An answer from before it is none for who has waited until after it."""

    def said(salt: str, seconds: int, wait: float) -> str:
        with sql_cache.rollout(sql_image, salt=salt) as rollout:
            for step in steps:
                ask(rollout, step.format(seconds))
            time.sleep(wait)
            return ask(rollout, last).output

    for seconds in (2, 4, 8, 16, 32, 64):  # on a machine that has much else to do, they may be over before it is asked
        salt, began = secrets.token_hex(), time.monotonic()
        before = said(salt, seconds, 0.0)
        if time.monotonic() - began < seconds:
            break
    assert said(salt, seconds, seconds + 4.0) != before
