"""What database systems keep beside tables: views that draw, generators, statistics, ids, locks, starts of scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from tests.fuzz.cases import Motif, Step, bash, execute, sql
from tests.fuzz.tables import NOW, RANDOM_TEXT, drawn, fact

Part = str | Step
"""A statement, or any step."""


def plain(topic: str, steps: Sequence[Part], views: Sequence[Part]) -> Motif:
    """Returns a motif whose views show what a fresh execution shows."""

    def made(parts: Sequence[Part]) -> tuple[Step, ...]:
        found = [part if isinstance(part, Step) else sql(part) for part in parts]
        return tuple(replace(step, topic=topic) for step in found)

    return Motif(topic, made(steps), made(views))


def same(topic: str, name: str, free: str, steps: Sequence[str], views: Sequence[str]) -> Motif:
    """Returns a motif whose views agree with each other."""
    return fact(topic, name, free, [*map(sql, steps)], [*map(sql, views)])


def distinct(topic: str, name: str, steps: Sequence[str], query: str) -> Motif:
    """Returns a motif whose view draws anew each time."""
    ask = sql(query, shows=f"{topic} {name}", form="distinct", free="chance")
    return plain(topic, [*steps, ask, ask], [ask])


def _drawing(chance: Random, system: str, t: str) -> Motif:
    view = f"CREATE VIEW draws_{t} AS SELECT {RANDOM_TEXT[system]} AS k"
    return distinct("C7 view of chance", t, [view], f"SELECT k FROM draws_{t}")


def _expiring(chance: Random, system: str, t: str) -> Motif:
    """A view of what has not expired yet."""
    steps: list[Part] = [
        f"CREATE TABLE live_{t} (id INTEGER, until DOUBLE PRECISION)",
        sql(f"INSERT INTO live_{t} VALUES (1, {NOW[system]} + 1.0)", free="clock", begins=True),
        f"CREATE VIEW of_live_{t} AS SELECT id FROM live_{t} WHERE until > {NOW[system]}",
    ]
    late = sql(f"SELECT id FROM of_live_{t}", pause=2.5)
    early = replace(late, pause=0.0, free="clock")  # in a fork the time of day has gone on since it was recorded
    then = chance.choice([[early, late], [early], []])
    return plain("C7 view of the clock", [*steps, *then], [late])


def _synchronised_scan(chance: Random, t: str) -> Motif:
    rows = "SELECT g, repeat('x', 700) AS filler FROM generate_series(1, 30000) g"
    return plain(
        "C7 synchronised scan",
        [
            f"CREATE TABLE {t} AS {rows}; ANALYZE {t}",
            f"SELECT g FROM {t} OFFSET 2000 LIMIT 3",
            f"CREATE TABLE s_{t} AS SELECT g FROM {t} LIMIT 3",
        ],
        [f"SELECT g FROM {t} LIMIT 3", f"SELECT g FROM {t} OFFSET 1000 LIMIT 2", f"SELECT g FROM s_{t}"],
    )


def _pruned_page(chance: Random, t: str) -> Motif:
    rows = "SELECT g, repeat('x', 300) FROM generate_series(1, 20) g"
    return plain(
        "C7 pruned page",
        [
            f"CREATE TABLE {t} (id INTEGER, v TEXT); INSERT INTO {t} {rows}",
            f"UPDATE {t} SET v = repeat('y', 300) WHERE id < 8",
            f"SELECT count(*) FROM {t}",
            f"UPDATE {t} SET v = repeat('z', 300) WHERE id BETWEEN 5 AND 9",
        ],
        [f"SELECT ctid, id FROM {t}", f"SELECT id FROM {t}", execute(f"psql -XAtd shop -c 'SELECT id FROM {t}'")],
    )


POSTGRES: tuple[Callable[[Random, str], Motif], ...] = (
    _synchronised_scan,
    _pruned_page,
    lambda chance, t: plain(
        "C7 setseed",
        [f"SELECT setseed(0.{chance.randint(1, 9)})"],
        ["SELECT random()", "SELECT random() AS x", "SELECT 1, random()"],
    ),
    lambda chance, t: plain(
        "C7 session statistics",
        ["COMMIT", "SELECT * FROM items", "SELECT count(*) FROM items"],
        [
            "SELECT seq_scan, seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'items'",
            "SELECT pg_stat_get_xact_numscans('items'::regclass)",
        ],
    ),
    lambda chance, t: same(
        "C7 transaction id",
        t,
        "",
        [f"CREATE TABLE {t} (id INTEGER); INSERT INTO {t} VALUES (1)"],
        [f"SELECT xmin FROM {t}", f"SELECT xmin FROM {t} LIMIT 1"],
    ),
    lambda chance, t: same(
        "C7 backend id",
        t,
        "chance",  # a system's own workers come and go
        ["SET application_name = 'me'"],
        ["SELECT pg_backend_pid()", "SELECT pid FROM pg_stat_activity WHERE application_name = 'me'"],
    ),
    lambda chance, t: plain(
        "C7 terminated session", ["SELECT pg_terminate_backend(pg_backend_pid())"], ["SELECT 1", "SELECT 2"]
    ),
    lambda chance, t: same(
        "C7 gen_salt written",
        t,
        "chance",
        ["CREATE EXTENSION IF NOT EXISTS pgcrypto", f"CREATE TABLE {t} AS SELECT gen_salt('md5') AS k"],
        [f"SELECT k FROM {t}", f"SELECT max(k) FROM {t}"],
    ),
    lambda chance, t: distinct("C7 gen_salt", t, ["CREATE EXTENSION IF NOT EXISTS pgcrypto"], "SELECT gen_salt('md5')"),
    lambda chance, t: same(
        "C7 now in a transaction",
        t,
        "clock",
        ["BEGIN"],
        ["SELECT now()::text", "SELECT transaction_timestamp()::text"],
    ),
    lambda chance, t: same(
        "C7 oid",
        t,
        "",
        [f"CREATE TABLE {t} (id INTEGER)"],
        [f"SELECT '{t}'::regclass::oid", f"SELECT oid FROM pg_class WHERE relname = '{t}'"],
    ),
)

_STAMPED = "k TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)"
MARIADB: tuple[Callable[[Random, str], Motif], ...] = (
    lambda chance, t: same(
        "C7 ON UPDATE",
        t,
        "clock",
        [
            f"CREATE TABLE {t} (id INTEGER, v INTEGER, {_STAMPED})",
            f"INSERT INTO {t} (id, v) VALUES (1, 1)",
            f"UPDATE {t} SET v = 2",
        ],
        [f"SELECT k FROM {t}", f"SELECT max(k) FROM {t}", f"SELECT k FROM {t} WHERE v > 0"],
    ),
    lambda chance, t: plain(
        "C7 session statistics",
        ["SET autocommit = 1", "SELECT * FROM items", "SELECT count(*) FROM orders"],
        [
            "SHOW SESSION STATUS LIKE 'Handler_read_rnd_next'",
            "SHOW SESSION STATUS LIKE 'Com_select'",
            "SHOW STATUS LIKE 'Questions'",
        ],
    ),
    lambda chance, t: plain(
        "C7 seeded",
        [f"SET rand_seed1 = {chance.randint(1, 99)}, rand_seed2 = 7"],
        ["SELECT rand()", "SELECT rand() AS x", "SELECT 1, rand()"],
    ),
    lambda chance, t: same(
        "C7 connection id", t, "pid", ["SET @me = connection_id()"], ["SELECT @me", "SELECT connection_id()"]
    ),
    lambda chance, t: plain("C7 terminated session", ["KILL CONNECTION_ID()"], ["SELECT 1", "SELECT 2"]),
    lambda chance, t: same(
        "C7 uuid in a variable", t, "chance", ["SET @k = uuid()"], ["SELECT @k", "SELECT concat(@k, '')"]
    ),
    lambda chance, t: plain(
        "C7 auto increment",
        [
            f"CREATE TABLE {t} (id INTEGER PRIMARY KEY AUTO_INCREMENT, v INTEGER)",
            f"INSERT INTO {t} (v) VALUES (1), (2)",
            f"BEGIN; INSERT INTO {t} (v) VALUES (3); ROLLBACK",
        ],
        [f"INSERT INTO {t} (v) VALUES (9); SELECT max(id) FROM {t}", "SELECT last_insert_id()"],
    ),
)

_ANOTHER_WRITES = (
    "sqlite3 /srv/sqlite/shop.db \"INSERT INTO items VALUES (9, 'fig', 1)\"; echo $?; "
    "sqlite3 /srv/sqlite/shop.db 'SELECT count(*) FROM items'"
)
SQLITE: tuple[Callable[[Random, str], Motif], ...] = (
    lambda chance, t: plain(
        "C3 shared lock",
        ["BEGIN", "SELECT count(*) FROM items"],
        [execute(_ANOTHER_WRITES), bash(_ANOTHER_WRITES)],
    ),
    lambda chance, t: plain(
        "C7 changes",
        [f"CREATE TABLE {t} (id INTEGER)", f"INSERT INTO {t} VALUES (1), (2)"],
        ["SELECT changes(), total_changes()", "SELECT last_insert_rowid()"],
    ),
    lambda chance, t: same(
        "C7 random row",
        t,
        "chance",
        [f"CREATE TABLE {t} (id INTEGER PRIMARY KEY, v)", f"INSERT INTO {t} (v) VALUES (random())"],
        [f"SELECT v FROM {t}", f"SELECT sum(v) FROM {t}"],
    ),
)

_SYSTEMS = {"sqlite": SQLITE, "postgres": POSTGRES, "mariadb": MARIADB}


def motif(chance: Random, system: str, d: str) -> Motif:
    """Returns a motif of a system.

    Args:
        chance: what chooses.
        system: the system's name.
        d: a path whose last letter no other motif of the history has.
    """
    kind, t = chance.random(), f"t_{d[-1]}"
    if kind < 0.35:
        return drawn(chance, system, d)
    if kind < 0.43:
        return _drawing(chance, system, t)
    if kind < 0.5:
        return _expiring(chance, system, t)
    return chance.choice(_SYSTEMS[system])(chance, t)
