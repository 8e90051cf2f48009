"""SQL: statements determined by those before them, chance and clock in tables, and what is kept beside tables."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

from tests.fuzz.cases import Motif, Step, bash, sql

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


def step(chance: Random, system: str) -> Step:
    """Returns a statement whose result depends on nothing but those before it, or a command beside it."""
    kind = chance.random()
    if kind < 0.06:
        return sql("SELECT * FROM parts") if kind < 0.02 else Step("schema", {})
    if kind < 0.12:
        return bash(_filled(chance, "echo <n> >> /root/f; cat /root/f"))
    if kind < 0.16:
        return Step("sql", {"query": _filled(chance, "INSERT INTO parts VALUES (<n>, 'nut')"), "database": "spare"})
    return sql(_filled(chance, chance.choice(COMMON if kind < 0.6 else OWN[system])))


def _filled(chance: Random, template: str) -> str:
    return re.sub(
        r"<([a-z]+)>", lambda found: chance.choice(CHOICES[found[1]]) if found[1] in CHOICES else found[0], template
    )


def drawn(chance: Random, system: str, d: str) -> Motif:
    """Chance or the clock in a table: by a default, a trigger, a view, or in the statement itself."""
    t = f"drawn_{d[-1]}"
    kind, value = chance.choice([("chance", RANDOM_TEXT), ("chance", RANDOM_NUMBER), ("clock", NOW)])
    text = value[system]
    column = "VARCHAR(60)" if system != "sqlite" else "TEXT"
    way = chance.choice(["default", "trigger", "statement", "view", "update", "create as"])
    if way == "default":
        steps = [
            f"CREATE TABLE {t} (id INTEGER PRIMARY KEY, k {column} DEFAULT {text})",
            f"INSERT INTO {t} (id) VALUES (1)",
        ]
    elif way == "trigger":
        steps = [f"CREATE TABLE {t} (id INTEGER PRIMARY KEY, k {column})"]
        steps += [part.format(t=t, value=text) for part in TRIGGERS[system]] + [f"INSERT INTO {t} (id) VALUES (1)"]
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
    return fact(f"C7 {way} by {kind}", t, kind, [sql(text) for text in steps], views)


def fact(topic: str, name: str, free: str, steps: list[Step], views: list[Step]) -> Motif:
    """Returns a motif whose views show one fact.

    Args:
        topic: what it tries.
        name: of what the motif makes, in its history.
        free: why the fact is another in each execution; empty if it is not.
        steps, views: see `Motif`.
    """
    key = f"{topic} {name}"
    return Motif(
        topic,
        tuple(replace(step, topic=topic, free=free, sets=(key,)) for step in steps),
        tuple(replace(view, topic=topic, free=free, shows=key, form="rows") for view in views),
    )
