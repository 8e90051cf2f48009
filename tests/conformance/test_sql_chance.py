"""Chance and the clock behind the words: in views, defaults, triggers and functions, as the system tells of them."""

from __future__ import annotations

import secrets
import time

import pytest

from tests.conformance.sql_hidden import EXPIRING, MOMENTS, MOMENTS_MADE, PURE, READ, WRITTEN
from tests.conformance.sql_lab import SqlLab
from tests.conformance.test_sql_observation import begin
from tests.sql_images import SYSTEMS, Client, answered, ask, seen
from tvsnap import Cache
from tvsnap.engine.keeping.policy import Costs
from tvsnap.images import Image

WRITES = [(system, case) for system in SYSTEMS for case in WRITTEN[system]]
KEPT = [pair for pair in WRITES if pair[1] in ("default", "trigger", "on update", "deferred")]
READS = [(system, case) for system in SYSTEMS for case in READ[system]]


def changed(client: Client, query: str) -> tuple[bool, bool]:
    """Runs a query; returns whether chance may have entered what it did, and whether it surely did not."""
    client.environment.observe(client.sandbox)
    said = client.sql(query)
    assert "error" not in said, (query, said)
    seen = client.environment.observe(client.sandbox)
    return seen.chance, seen.reproducible


@pytest.mark.parametrize(("sql_system", "case"), KEPT, indirect=["sql_system"], scope="session")
def test_what_chance_wrote_unsaid_is_kept(
    sql_cache: Cache, sql_image: Image, sql_system: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollout that was shown what was written goes on from where that was written."""
    monkeypatch.setattr(Costs, "pause_s", 1e6)  # however long a checkpoint takes just now
    written = WRITTEN[sql_system][case]
    marked = {"command": f"mark={secrets.token_hex()}"}
    shown = set()
    for number in range(2):
        with sql_cache.rollout(sql_image) as rollout:
            rollout.call("bash", marked)
            for query in written.made:
                assert ask(rollout, query).exit_code == 0, query
            before = rollout.state
            assert ask(rollout, written.change).source == ("hit" if number else "executed")
            assert rollout.state != before
            assert not rollout.private
            state = rollout.state
            ((value,),) = seen(rollout, written.shown)
            shown.add(value)
            rollout.sandbox()  # its own from now on: the next one needs another
            assert state in {snapshot.state for snapshot in sql_cache.graph.snapshots()}
            if number:
                assert seen(rollout, written.found.format(value)) == [[1]]
    assert len(shown) == 1


@pytest.mark.parametrize(("sql_system", "case"), READS, indirect=["sql_system"], scope="session")
def test_chance_that_is_read_unsaid_is_drawn_anew(
    sql_cache: Cache, sql_image: Image, sql_system: str, case: str
) -> None:
    made, query = READ[sql_system][case]
    with begin(sql_cache, sql_image) as rollout:
        for each in made:
            assert ask(rollout, each).exit_code == 0, each
        state = rollout.state
        results = [ask(rollout, query) for _ in range(3)]
        assert [result.exit_code for result in results] == [0] * 3, results
        assert [result.source for result in results] == ["executed"] * 3
        assert len({result.output for result in results}) == 3
        assert rollout.state == state
        assert not rollout.private


def test_forks_do_not_draw_the_same_from_a_view(sql_cache: Cache, sql_image: Image, sql_system: str) -> None:
    made, query = READ[sql_system]["view"]
    marked = {"command": f"mark={secrets.token_hex()}"}
    rollouts = [sql_cache.rollout(sql_image) for _ in range(3)]
    drawn = []
    for rollout in rollouts:
        rollout.call("bash", marked)
        ask(rollout, made[0])
        drawn += [seen(rollout, query)[0][0] for _ in range(2)]
    for rollout in rollouts:
        rollout.close()
    assert len(set(drawn)) == 6


def test_a_view_of_what_is_still_valid_expires(sql_cache: Cache, sql_image: Image, sql_system: str) -> None:
    table, view = EXPIRING[sql_system]
    with begin(sql_cache, sql_image) as rollout:
        ask(rollout, view.replace("valid", "unused").replace("FROM x", "FROM (SELECT 1 AS until) AS x"))
        ask(rollout, table)
        ask(rollout, view)
        asked = "SELECT count(*) FROM valid"
        began = time.monotonic()
        while seen(rollout, asked) != [[0]]:
            assert time.monotonic() - began < 60
            time.sleep(0.1)


def test_what_is_known_to_be_reproducible(sql_lab: SqlLab, sql_system: str) -> None:
    client = sql_lab.client()
    for query in PURE[sql_system]:
        assert changed(client, query) == (False, True), query
    assert changed(client, "SELECT count(*) FROM items") == (False, False)


def test_what_is_not_known_to_be_reproducible(sql_lab: SqlLab, sql_system: str) -> None:
    for case, written in WRITTEN[sql_system].items():
        client = sql_lab.client()
        client.do(*written.made)
        chance, reproducible = changed(client, written.change)
        assert not reproducible, case
        # That the server notes down when a trigger was made is told by the word.
        assert chance or case == "made when", case
        client.sandbox.close()


@pytest.mark.parametrize("sql_system", ["postgres"], indirect=True, scope="session")
def test_text_that_may_be_the_time_is_not_reproducible(sql_lab: SqlLab) -> None:
    client = sql_lab.client()
    client.do(*MOMENTS_MADE)
    assert [query for query in MOMENTS if changed(client, query)[1]] == []


@pytest.mark.parametrize("sql_system", ["postgres"], indirect=True, scope="session")
def test_reading_by_an_overloaded_function_is_not_shared(sql_cache: Cache, sql_image: Image) -> None:
    made = "CREATE FUNCTION lower(integer) RETURNS timestamptz LANGUAGE sql AS 'SELECT clock_timestamp()'"
    with begin(sql_cache, sql_image) as rollout:
        assert ask(rollout, made).exit_code == 0
        results = [ask(rollout, "SELECT lower(5)") for _ in range(2)]
    assert [result.source for result in results] == ["executed"] * 2
    assert results[0].output != results[1].output


@pytest.mark.parametrize("sql_system", ["postgres"], indirect=True, scope="session")
def test_a_notification_is_handed_out_once(sql_cache: Cache, sql_image: Image) -> None:
    marked = {"command": f"mark={secrets.token_hex()}"}
    for number in range(2):
        with sql_cache.rollout(sql_image) as rollout:
            rollout.call("bash", marked)
            ask(rollout, "LISTEN ch")
            assert rollout.call("bash", {"command": "psql -X -q -d shop -c 'NOTIFY ch'"}).exit_code == 0
            before = rollout.state
            said = [answered(ask(rollout, "SELECT 1")) for _ in range(3)]
            assert ["messages" in each for each in said] == [True, False, False], number
            assert rollout.state != before


@pytest.mark.parametrize("sql_system", ["postgres"], indirect=True, scope="session")
def test_messages_with_times_are_not_shared(sql_cache: Cache, sql_image: Image) -> None:
    with begin(sql_cache, sql_image) as rollout:
        ask(rollout, "CREATE TABLE w (n integer)")
        ask(rollout, "SET client_min_messages = 'log'")
        ask(rollout, "SET log_duration = on")
        results = [ask(rollout, "SELECT 1") for _ in range(2)]
        assert all("duration" in result.output for result in results)
        assert [result.source for result in results] == ["executed"] * 2


@pytest.mark.parametrize("sql_system", ["postgres"], indirect=True, scope="session")
def test_a_change_with_a_time_in_its_messages_is_not_reproducible(sql_lab: SqlLab) -> None:
    client = sql_lab.client()
    client.do("CREATE TABLE w (n integer)", "SET client_min_messages = 'log'", "SET log_duration = on")
    assert changed(client, "INSERT INTO w VALUES (1)") == (True, False)
    client.do("SET log_duration = off")
    assert changed(client, "INSERT INTO w VALUES (1)") == (False, True)


@pytest.mark.parametrize("sql_system", ["mariadb"], indirect=True, scope="session")
def test_a_time_of_day_that_is_written_is_not_reproducible(sql_lab: SqlLab) -> None:
    client = sql_lab.client()
    client.do("CREATE TABLE h (k DATETIME)")
    for value in ("TIME'10:00:00'", "{t '11:00:00'}", "STR_TO_DATE('10:00', '%H:%i')", "MAKETIME(1, 2, 3)"):
        assert not changed(client, f"INSERT INTO h VALUES ({value})")[1], value
    assert changed(client, "INSERT INTO h VALUES ('2024-01-01 10:00:00')") == (False, True)


@pytest.mark.parametrize("sql_system", ["mariadb"], indirect=True, scope="session")
def test_reads_of_which_account_is_kept_are_changes(sql_cache: Cache, sql_image: Image) -> None:
    with begin(sql_cache, sql_image) as rollout:
        states = []
        for query in ("SET profiling = 1", "SELECT 5", "SELECT 5", "SET profiling = 0", "SELECT 5", "SELECT 5"):
            assert ask(rollout, query).exit_code == 0
            states.append(rollout.state)
        assert len(set(states)) == 4, states
        assert states[3] == states[4] == states[5]


@pytest.mark.parametrize("sql_system", ["sqlite"], indirect=True, scope="session")
def test_the_log_can_be_written_back_at_once(sql_lab: SqlLab) -> None:
    client = sql_lab.client()
    client.do("PRAGMA journal_mode = WAL")
    assert client.rows("PRAGMA wal_checkpoint(TRUNCATE)") == [[0, 0, 0]]
    client.do("CREATE TEMPORARY TABLE w (n INTEGER)")
    assert "w" in {table["name"] for table in answered(client.call("schema"))["tables"]}


def test_another_clients_hands_are_no_chance_of_the_sessions(sql_lab: SqlLab, sql_system: str) -> None:
    client = sql_lab.client()
    client.environment.observe(client.sandbox)
    client.console("DELETE FROM orders")
    observed = client.environment.observe(client.sandbox)
    assert (observed.chance, observed.reproducible) == (False, False)
