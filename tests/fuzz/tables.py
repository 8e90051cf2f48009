"""SQL: statements determined by those before them, chance and clock in tables, and what engines keep beside tables."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

from tests.fuzz.cases import Motif, Step, bash, execute, sql

CHOICES = {
    "t": ("a", "b"),
    "n": ("1", "2", "3", "4", "5"),
    "w": ("'one'", "'it''s'", "'é'", "''", "NULL"),
}

COMMON = (
    "CREATE TABLE <t> (id INTEGER PRIMARY KEY, v VARCHAR(20))",
    "CREATE TABLE <t> (id INTEGER PRIMARY KEY, v VARCHAR(20))",
    "CREATE TABLE <t> (id INTEGER, v VARCHAR(20) NOT NULL, n DECIMAL(10, 3) DEFAULT 1.5)",
    "DROP TABLE <t>",
    "INSERT INTO <t> (id, v) VALUES (<n>, <w>)",
    "INSERT INTO <t> (id, v) VALUES (<n>, <w>)",
    "INSERT INTO <t> (id, v) SELECT id + <n>, v FROM <t>",
    "UPDATE <t> SET v = <w> WHERE id >= <n>",
    "UPDATE items SET price = price + <n> WHERE id < <n>",
    "DELETE FROM <t> WHERE id = <n>",
    "DELETE FROM orders WHERE id = <n>",
    "INSERT INTO orders VALUES (<n>0, <n>)",
    "ALTER TABLE <t> ADD COLUMN x INTEGER DEFAULT <n>",
    "CREATE INDEX by_v ON <t> (v)",
    "CREATE VIEW looking AS SELECT id, v FROM <t> WHERE id > <n>",
    "DROP VIEW looking",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT s<n>",
    "ROLLBACK TO SAVEPOINT s<n>",
    "CREATE TEMPORARY TABLE w (id INTEGER, v VARCHAR(20))",
    "INSERT INTO w VALUES (<n>, <w>)",
    "INSERT INTO <t> (id, v) VALUES (<n>, 'x'); SELECT COUNT(*) FROM <t>; INSERT INTO <t> (id, v) VALUES (<n>, 'y')",
    "SELECT id, v FROM <t>",
    "SELECT * FROM <t>",
    "SELECT * FROM items",
    "SELECT * FROM orders LIMIT <n>",
    "SELECT * FROM w",
    "SELECT * FROM looking",
    "SELECT COUNT(*), MIN(id), MAX(v) FROM <t> WHERE id > <n>",
    "SELEC <n>",
    "SELECT nowhere FROM <t>",
)

OWN = {
    "sqlite": (
        "PRAGMA foreign_keys = <n>",
        "PRAGMA foreign_keys",
        "PRAGMA user_version = <n>",
        "PRAGMA user_version",
        "BEGIN IMMEDIATE",
        "SELECT last_insert_rowid(), changes(), total_changes()",
        "REPLACE INTO <t> (id, v) VALUES (<n>, <w>)",
        "ATTACH ':memory:' AS m; CREATE TABLE m.t (n); INSERT INTO m.t VALUES (<n>)",
        "SELECT * FROM m.t",
        "PRAGMA data_version",
        "PRAGMA cache_size = <n>00",
        "PRAGMA cache_size",
        "SELECT rowid, * FROM <t>",
        "VACUUM",
    ),
    "postgres": (
        "CREATE SEQUENCE q",
        "SELECT nextval('q')",
        "SELECT setval('q', <n>)",
        "SELECT currval('q')",
        "CREATE OR REPLACE VIEW bumping AS SELECT nextval('q') AS n",
        "SELECT n FROM bumping",
        "SET datestyle = 'German'",
        "SHOW datestyle",
        "SELECT ctid, * FROM <t>",
        "SELECT ctid, * FROM items",
        "PREPARE p (integer) AS SELECT $1 + <n>",
        "EXECUTE p (<n>)",
        "SELECT pg_advisory_lock(<n>)",
        "SELECT objid FROM pg_locks WHERE locktype = 'advisory' ORDER BY 1",
        "TRUNCATE <t>",
        "DECLARE c CURSOR FOR SELECT generate_series(1, 9)",
        "FETCH <n> FROM c",
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "SELECT 'a'::regclass::oid",
        "SELECT 1 / 0",
        "LISTEN l<n>",
        "NOTIFY l<n>",
        "SET SESSION search_path = pg_catalog, public",
    ),
    "mariadb": (
        "SET @x = <n>",
        "SELECT @x, @@autocommit, DATABASE()",
        "SELECT @x := <n>",
        "PREPARE p FROM 'SELECT <n> + 1'",
        "EXECUTE p",
        "SELECT GET_LOCK('l<n>', 0)",
        "SELECT IS_FREE_LOCK('l1'), IS_FREE_LOCK('l2')",
        "USE spare",
        "USE shop",
        "CREATE SEQUENCE q",
        "SELECT NEXTVAL(q)",
        "SELECT LASTVAL(q)",
        "SET autocommit = 0",
        "SET autocommit = 1",
        "CREATE TABLE auto (id INTEGER PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20))",
        "INSERT INTO auto (v) VALUES (<w>)",
        "SELECT LAST_INSERT_ID()",
        "SELECT * FROM auto",
        "ALTER TABLE <t> ENGINE = MyISAM",
        "SHOW CREATE TABLE <t>",
        "SELECT FOUND_ROWS(), ROW_COUNT(), @@warning_count",
        "SHOW WARNINGS",
        "TRUNCATE <t>",
        "LOCK TABLES items WRITE",
        "UNLOCK TABLES",
    ),
}

RANDOM_TEXT = {
    "sqlite": "(lower(hex(randomblob(8))))",
    "postgres": "(gen_random_uuid()::text)",
    "mariadb": "(uuid())",
}
RANDOM_NUMBER = {"sqlite": "(random())", "postgres": "(random())", "mariadb": "(rand())"}
NOW = {
    "sqlite": "(julianday('now') * 86400)",
    "postgres": "(extract(epoch from clock_timestamp())::float8)",
    "mariadb": "(unix_timestamp(sysdate(6)))",
}
TRIGGERS = {
    "sqlite": ("CREATE TRIGGER tr_{t} AFTER INSERT ON {t} BEGIN UPDATE {t} SET k = {value} WHERE id = NEW.id; END",),
    "postgres": (
        "CREATE FUNCTION fu_{t}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.k := {value}; RETURN NEW; END $$",
        "CREATE TRIGGER tr_{t} BEFORE INSERT ON {t} FOR EACH ROW EXECUTE FUNCTION fu_{t}()",
    ),
    "mariadb": ("CREATE TRIGGER tr_{t} BEFORE INSERT ON {t} FOR EACH ROW SET NEW.k = {value}",),
}


def step(chance: Random, engine: str) -> Step:
    """Returns a statement whose result depends on nothing but those before it, or a command beside it."""
    kind = chance.random()
    if kind < 0.06:
        return sql("SELECT * FROM parts") if kind < 0.02 else Step("schema", {})
    if kind < 0.12:
        return bash(_filled(chance, "echo <n> >> /root/f; cat /root/f"))
    if kind < 0.16:
        return Step("sql", {"query": _filled(chance, "INSERT INTO parts VALUES (<n>, 'nut')"), "database": "spare"})
    return sql(_filled(chance, chance.choice(COMMON if kind < 0.6 else OWN[engine])))


def _filled(chance: Random, template: str) -> str:
    return re.sub(
        r"<([a-z]+)>", lambda found: chance.choice(CHOICES[found[1]]) if found[1] in CHOICES else found[0], template
    )


def drawn(chance: Random, engine: str, d: str) -> Motif:
    """Chance or the clock in a table: by a default, a trigger, a view, or in the statement itself."""
    t = f"drawn_{d[-1]}"
    kind, value = chance.choice([("chance", RANDOM_TEXT), ("chance", RANDOM_NUMBER), ("clock", NOW)])
    text = value[engine]
    column = "VARCHAR(60)" if engine != "sqlite" else "TEXT"
    way = chance.choice(["default", "trigger", "statement", "view", "update", "create as"])
    if way == "default":
        steps = [
            f"CREATE TABLE {t} (id INTEGER PRIMARY KEY, k {column} DEFAULT {text})",
            f"INSERT INTO {t} (id) VALUES (1)",
        ]
    elif way == "trigger":
        steps = [f"CREATE TABLE {t} (id INTEGER PRIMARY KEY, k {column})"]
        steps += [part.format(t=t, value=text) for part in TRIGGERS[engine]] + [f"INSERT INTO {t} (id) VALUES (1)"]
    elif way == "view":
        steps = [
            f"CREATE VIEW of_{t} AS SELECT {text} AS k",
            f"CREATE TABLE {t} (id INTEGER, k {column})",
            f"INSERT INTO {t} SELECT 1, k FROM of_{t}",
        ]
    elif way == "update":
        steps = [
            f"CREATE TABLE {t} (id INTEGER, k {column})",
            f"INSERT INTO {t} VALUES (1, 'x')",
            f"UPDATE {t} SET k = {text}",
        ]
    elif way == "create as":
        steps = [f"CREATE TABLE {t} AS SELECT 1 AS id, {text} AS k"]
    else:
        steps = [f"CREATE TABLE {t} (id INTEGER, k {column})", f"INSERT INTO {t} VALUES (1, {text})"]
    views = [
        sql(f"SELECT k FROM {t}"),
        sql(f"SELECT max(k) FROM {t}"),
        sql(f"SELECT x.k FROM {t} x ORDER BY 1 LIMIT 1"),
        sql(f"SELECT k FROM {t} WHERE id = 1"),
    ]
    return _fact(f"C7 {way} by {kind}", t, kind, [sql(text) for text in steps], views)


def _fact(topic: str, fact: str, free: str, steps: list[Step], views: list[Step]) -> Motif:
    key = f"{topic} {fact}"
    return Motif(
        topic,
        tuple(replace(step, topic=topic, free=free, sets=(key,)) for step in steps),
        tuple(replace(view, topic=topic, free=free, shows=key, form="rows") for view in views),
    )


def _plain(topic: str, steps: list[Step], views: list[Step]) -> Motif:
    return Motif(
        topic, tuple(replace(step, topic=topic) for step in steps), tuple(replace(view, topic=topic) for view in views)
    )


def drawing_view(chance: Random, engine: str, d: str) -> Motif:
    """A view that draws anew each time it is read."""
    v = f"draws_{d[-1]}"
    body = f"SELECT {RANDOM_TEXT[engine]} AS k"
    fact = f"draws {v}"
    ask = sql(f"SELECT k FROM {v}", shows=fact, form="distinct", free="chance")
    motif = _plain("C7 view of chance", [sql(f"CREATE VIEW {v} AS {body}"), ask, ask], [ask, ask])
    return motif


def expiring(chance: Random, engine: str, d: str) -> Motif:
    """A view of what has not expired yet."""
    t = f"live_{d[-1]}"
    steps = [
        sql(f"CREATE TABLE {t} (id INTEGER, until DOUBLE PRECISION)"),
        sql(f"INSERT INTO {t} VALUES (1, {NOW[engine]} + 1.3)", free="clock"),
        sql(f"CREATE VIEW of_{t} AS SELECT id FROM {t} WHERE until > {NOW[engine]}"),
    ]
    ask = sql(f"SELECT id FROM of_{t}", pause=2.5)
    early = replace(ask, pause=0.0)
    motif = _plain("C7 view of the clock", [*steps, *chance.choice([[early, ask], [early], []])], [ask])
    return Motif(
        motif.topic,
        tuple(replace(s, developing=True) for s in motif.steps),
        tuple(replace(s, developing=True) for s in motif.views),
    )


def _postgres(chance: Random, d: str) -> Motif:
    t = f"pg_{d[-1]}"
    big = sql(f"CREATE TABLE {t} AS SELECT g, repeat('x', 700) AS filler FROM generate_series(1, 30000) g; ANALYZE {t}")
    return chance.choice(
        [
            _plain(
                "C7 synchronised scan",
                [
                    big,
                    sql(f"SELECT g FROM {t} OFFSET 2000 LIMIT 3"),
                    sql(f"CREATE TABLE s_{t} AS SELECT g FROM {t} LIMIT 3"),
                ],
                [
                    sql(f"SELECT g FROM {t} LIMIT 3"),
                    sql(f"SELECT g FROM {t} OFFSET 1000 LIMIT 2"),
                    sql(f"SELECT g FROM s_{t}"),
                ],
            ),
            _plain(
                "C7 pruned page",
                [
                    sql(
                        f"CREATE TABLE {t} (id INTEGER, v TEXT); INSERT INTO {t} SELECT g, repeat('x', 300) FROM generate_series(1, 20) g"
                    ),
                    sql(f"UPDATE {t} SET v = repeat('y', 300) WHERE id < 8"),
                    sql(f"SELECT count(*) FROM {t}"),
                    sql(f"UPDATE {t} SET v = repeat('z', 300) WHERE id BETWEEN 5 AND 9"),
                ],
                [
                    sql(f"SELECT ctid, id FROM {t}"),
                    sql(f"SELECT id FROM {t}"),
                    execute(f"psql -XAtd shop -c 'SELECT id FROM {t}'"),
                ],
            ),
            _plain(
                "C7 setseed",
                [sql(f"SELECT setseed(0.{chance.randint(1, 9)})")],
                [sql("SELECT random()"), sql("SELECT random() AS x"), sql("SELECT 1, random()")],
            ),
            _plain(
                "C7 session statistics",
                [sql("SELECT * FROM items"), sql("SELECT count(*) FROM items")],
                [
                    sql("SELECT seq_scan, seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'items'"),
                    sql("SELECT pg_stat_get_xact_numscans('items'::regclass)"),
                ],
            ),
            _fact(
                "C7 transaction id",
                t,
                "",
                [sql(f"CREATE TABLE {t} (id INTEGER); INSERT INTO {t} VALUES (1)")],
                [sql(f"SELECT xmin FROM {t}"), sql(f"SELECT max(xmin::text) FROM {t}")],
            ),
            _fact(
                "C7 backend id",
                t,
                "pid",
                [sql("SET application_name = 'me'")],
                [sql("SELECT pg_backend_pid()"), sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'me'")],
            ),
            _plain(
                "C7 terminated session",
                [sql("SELECT pg_terminate_backend(pg_backend_pid())")],
                [sql("SELECT 1"), sql("SELECT 2")],
            ),
            _fact(
                "C7 gen_salt",
                t,
                "chance",
                [
                    sql("CREATE EXTENSION IF NOT EXISTS pgcrypto"),
                    sql(f"CREATE TABLE {t} AS SELECT gen_salt('md5') AS k"),
                ],
                [sql(f"SELECT k FROM {t}"), sql(f"SELECT max(k) FROM {t}")],
            ),
            _distinct(
                "C7 gen_salt drawn", [sql("CREATE EXTENSION IF NOT EXISTS pgcrypto")], sql("SELECT gen_salt('md5')")
            ),
            _fact(
                "C7 now in a transaction",
                t,
                "clock",
                [sql("BEGIN")],
                [sql("SELECT now()::text"), sql("SELECT transaction_timestamp()::text")],
            ),
            _fact(
                "C7 oid",
                t,
                "",
                [sql(f"CREATE TABLE {t} (id INTEGER)")],
                [sql(f"SELECT '{t}'::regclass::oid"), sql(f"SELECT oid FROM pg_class WHERE relname = '{t}'")],
            ),
        ]
    )


def _mariadb(chance: Random, d: str) -> Motif:
    t = f"my_{d[-1]}"
    return chance.choice(
        [
            _fact(
                "C7 ON UPDATE",
                t,
                "clock",
                [
                    sql(
                        f"CREATE TABLE {t} (id INTEGER, v INTEGER, k TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6))"
                    ),
                    sql(f"INSERT INTO {t} (id, v) VALUES (1, 1)"),
                    sql(f"UPDATE {t} SET v = 2"),
                ],
                [sql(f"SELECT k FROM {t}"), sql(f"SELECT max(k) FROM {t}"), sql(f"SELECT k FROM {t} WHERE v > 0")],
            ),
            _plain(
                "C7 session statistics",
                [sql("SELECT * FROM items"), sql("SELECT count(*) FROM orders")],
                [
                    sql("SHOW SESSION STATUS LIKE 'Handler_read_rnd_next'"),
                    sql("SHOW SESSION STATUS LIKE 'Com_select'"),
                    sql("SHOW STATUS LIKE 'Questions'"),
                ],
            ),
            _plain(
                "C7 seeded",
                [sql(f"SET rand_seed1 = {chance.randint(1, 99)}, rand_seed2 = 7")],
                [sql("SELECT rand()"), sql("SELECT rand() AS x"), sql("SELECT 1, rand()")],
            ),
            _fact(
                "C7 connection id",
                t,
                "pid",
                [sql("SET @me = connection_id()")],
                [sql("SELECT @me"), sql("SELECT connection_id()")],
            ),
            _plain("C7 terminated session", [sql("KILL CONNECTION_ID()")], [sql("SELECT 1"), sql("SELECT 2")]),
            _fact(
                "C7 uuid variable",
                t,
                "chance",
                [sql("SET @k = uuid()")],
                [sql("SELECT @k"), sql("SELECT concat(@k, '')")],
            ),
            _plain(
                "C7 auto increment",
                [
                    sql(f"CREATE TABLE {t} (id INTEGER PRIMARY KEY AUTO_INCREMENT, v INTEGER)"),
                    sql(f"INSERT INTO {t} (v) VALUES (1), (2)"),
                    sql(f"BEGIN; INSERT INTO {t} (v) VALUES (3); ROLLBACK"),
                ],
                [sql(f"INSERT INTO {t} (v) VALUES (9); SELECT max(id) FROM {t}"), sql("SELECT last_insert_id()")],
            ),
        ]
    )


def _sqlite(chance: Random, d: str) -> Motif:
    t = f"li_{d[-1]}"
    write = (
        "sqlite3 /srv/sqlite/shop.db \"INSERT INTO items VALUES (9, 'fig', 1)\"; echo $?; "
        "sqlite3 /srv/sqlite/shop.db 'SELECT count(*) FROM items'"
    )
    return chance.choice(
        [
            _plain("C3 shared lock", [sql("BEGIN"), sql("SELECT count(*) FROM items")], [execute(write), bash(write)]),
            _plain(
                "C7 changes",
                [sql(f"CREATE TABLE {t} (id INTEGER)"), sql(f"INSERT INTO {t} VALUES (1), (2)")],
                [sql("SELECT changes(), total_changes()"), sql("SELECT last_insert_rowid()")],
            ),
            _fact(
                "C7 random rowid",
                t,
                "chance",
                [sql(f"CREATE TABLE {t} (id INTEGER PRIMARY KEY, v)"), sql(f"INSERT INTO {t} (v) VALUES (random())")],
                [sql(f"SELECT v FROM {t}"), sql(f"SELECT sum(v) FROM {t}")],
            ),
        ]
    )


def _distinct(topic: str, steps: list[Step], ask: Step) -> Motif:
    ask = replace(ask, shows=topic, form="distinct", free="chance")
    return _plain(topic, [*steps, ask, ask], [ask])


_ENGINES = {"sqlite": _sqlite, "postgres": _postgres, "mariadb": _mariadb}


def motif(chance: Random, engine: str, d: str) -> Motif:
    """Returns a motif of an engine.

    Args:
        chance: what chooses.
        engine: the engine's name.
        d: a path whose last letter no other motif of the history has.
    """
    kind = chance.random()
    if kind < 0.35:
        return drawn(chance, engine, d)
    if kind < 0.45:
        return drawing_view(chance, engine, d)
    if kind < 0.5:
        return expiring(chance, engine, d)
    return _ENGINES[engine](chance, d)
