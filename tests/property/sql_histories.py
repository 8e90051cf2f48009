"""Random histories of SQL whose results depend on nothing but the calls before them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.property.histories import Call

TABLES = st.sampled_from(["a", "b"])
NUMBERS = st.integers(1, 5)
WORDS = st.sampled_from(["'one'", "'it''s'", "'é\N{GRINNING FACE}'", "''", "NULL"])

Strategies = list[st.SearchStrategy[Call]]


def sql(template: str, **choices: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    """Returns calls of `sql` from a template with `{name}` for each choice."""
    return st.fixed_dictionaries(choices).map(lambda values: Call("sql", {"query": template.format(**values)}))


def _create(system: str) -> list[str]:
    made = [
        "CREATE TABLE {table} (id INTEGER PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE {table} (id INTEGER, v VARCHAR(20) NOT NULL, n DECIMAL(10, 3) DEFAULT 1.5)",
    ]
    return [*made, "CREATE TABLE {table} (id INTEGER PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20))"][
        : 3 if system == "mariadb" else 2
    ]


_CHANGES: Strategies = [
    sql("DROP TABLE {table}", table=TABLES),
    sql("INSERT INTO {table} (id, v) VALUES ({n}, {word})", table=TABLES, n=NUMBERS, word=WORDS),
    sql("INSERT INTO {table} (id, v) VALUES ({n}, {word})", table=TABLES, n=NUMBERS, word=WORDS),
    sql("INSERT INTO {table} (id, v) SELECT id + {n}, v FROM {other}", table=TABLES, other=TABLES, n=NUMBERS),
    sql("UPDATE {table} SET v = {word} WHERE id >= {n}", table=TABLES, n=NUMBERS, word=WORDS),
    sql("UPDATE {table} SET id = id + {n}", table=TABLES, n=NUMBERS),
    sql("DELETE FROM {table} WHERE id = {n}", table=TABLES, n=NUMBERS),
    sql("ALTER TABLE {table} ADD COLUMN x INTEGER DEFAULT {n}", table=TABLES, n=NUMBERS),
    sql("CREATE INDEX by_v ON {table} (v)", table=TABLES),
    sql("CREATE VIEW looking AS SELECT id, v FROM {table} WHERE id > {n}", table=TABLES, n=NUMBERS),
    sql("DROP VIEW looking"),
    sql(
        "INSERT INTO {table} (id, v) VALUES ({n}, 'x'); SELECT COUNT(*) FROM {table}; "
        "INSERT INTO {table} (id, v) VALUES ({m}, 'y')",
        table=TABLES, n=NUMBERS, m=NUMBERS,
    ),
    sql("BEGIN"),
    sql("BEGIN"),
    sql("COMMIT"),
    sql("ROLLBACK"),
    sql("SAVEPOINT s{n}", n=st.integers(1, 2)),
    sql("ROLLBACK TO SAVEPOINT s{n}", n=st.integers(1, 2)),
    sql("RELEASE SAVEPOINT s{n}", n=st.integers(1, 2)),
    sql("CREATE TEMPORARY TABLE w (id INTEGER, v VARCHAR(20))"),
    sql("CREATE TEMPORARY TABLE {table} (id INTEGER, v VARCHAR(20))", table=TABLES),
    sql("INSERT INTO w VALUES ({n}, {word})", n=NUMBERS, word=WORDS),
    sql("DROP TABLE w"),
    st.builds(lambda n: Call("sql", {"query": f"INSERT INTO parts VALUES ({n}, 'nut')", "database": "spare"}), NUMBERS),
    st.builds(lambda n: Call("bash", {"command": f"echo {n} >> /root/f; cat /root/f"}), NUMBERS),
]  # fmt: skip

_LOOKS: Strategies = [
    sql("SELECT * FROM {table} ORDER BY id, v", table=TABLES),
    sql("SELECT * FROM {table} ORDER BY id, v", table=TABLES),
    sql("SELECT id, v FROM {table}", table=TABLES),
    sql("SELECT COUNT(*), MIN(id), MAX(v) FROM {table} WHERE id > {n}", table=TABLES, n=NUMBERS),
    sql("SELECT x.id, y.v FROM a x LEFT JOIN b y ON x.id = y.id ORDER BY 1, 2"),
    sql("SELECT * FROM w ORDER BY id, v"),
    sql("SELECT * FROM looking ORDER BY id"),
    sql("SELECT name, price FROM items ORDER BY id LIMIT {n}", n=NUMBERS),
    sql("SELEC {n}", n=NUMBERS),
    sql("SELECT nowhere FROM {table}", table=TABLES),
    st.builds(lambda n: Call("sql", {"query": "SELECT * FROM items ORDER BY id", "max_rows": n}), NUMBERS),
    st.just(Call("sql", {"query": "SELECT * FROM parts ORDER BY id", "database": "spare"})),
    st.just(Call("schema", {})),
    st.builds(lambda table: Call("schema", {"table": table}), TABLES),
    st.just(Call("bash", {"command": "cat /root/f; ls /root"})),
]

_OWN_CHANGES: dict[str, Strategies] = {
    "sqlite": [
        sql("PRAGMA foreign_keys = {n}", n=st.integers(0, 1)),
        sql("PRAGMA user_version = {n}", n=NUMBERS),
        sql("ATTACH ':memory:' AS m; CREATE TABLE m.t (n); INSERT INTO m.t VALUES ({n})", n=NUMBERS),
        sql("INSERT INTO m.t VALUES ({n})", n=NUMBERS),
        sql("BEGIN IMMEDIATE"),
        sql("REPLACE INTO {table} (id, v) VALUES ({n}, {word})", table=TABLES, n=NUMBERS, word=WORDS),
        sql("INSERT INTO orders VALUES ({n}0, {n})", n=NUMBERS),
    ],
    "postgres": [
        sql("CREATE SEQUENCE q"),
        sql("SELECT nextval('q')"),
        sql("SELECT setval('q', {n})", n=NUMBERS),
        sql("CREATE OR REPLACE VIEW bumping AS SELECT nextval('q') AS n"),
        sql("SELECT n FROM bumping"),
        sql("SET datestyle = '{style}'", style=st.sampled_from(["ISO", "German"])),
        sql("SET LOCAL extra_float_digits = {n}", n=NUMBERS),
        sql("PREPARE p (integer) AS SELECT $1 + {n}", n=NUMBERS),
        sql("DEALLOCATE p"),
        sql("SELECT pg_advisory_lock({n})", n=NUMBERS),
        sql("SELECT pg_advisory_unlock({n})", n=NUMBERS),
        sql("DECLARE c CURSOR FOR SELECT generate_series(1, 9)"),
        sql("FETCH {n} FROM c", n=NUMBERS),
        sql("BEGIN ISOLATION LEVEL REPEATABLE READ"),
        sql("TRUNCATE {table}", table=TABLES),
        st.builds(lambda n: Call("exec", {"command": f"psql -c 'INSERT INTO orders VALUES ({n}0, 1)' shop"}), NUMBERS),
    ],
    "mariadb": [
        sql("SET @x = {n}", n=NUMBERS),
        sql("SELECT @x := {n}", n=NUMBERS),
        sql("SET SESSION group_concat_max_len = {n}000", n=NUMBERS),
        sql("PREPARE p FROM 'SELECT {n} + 1'", n=NUMBERS),
        sql("DEALLOCATE PREPARE p"),
        sql("SELECT GET_LOCK('l{n}', 0)", n=NUMBERS),
        sql("SELECT RELEASE_LOCK('l{n}')", n=NUMBERS),
        sql("USE {name}", name=st.sampled_from(["shop", "spare"])),
        sql("CREATE SEQUENCE q"),
        sql("SELECT NEXTVAL(q)"),
        sql("SELECT SETVAL(q, {n}0)", n=NUMBERS),
        sql("SET autocommit = {n}", n=st.integers(0, 1)),
        sql("INSERT INTO {table} (v) VALUES ({word})", table=TABLES, word=WORDS),
        sql("SELECT LAST_INSERT_ID({n})", n=NUMBERS),
        sql("ALTER TABLE {table} ENGINE = {kind}", table=TABLES, kind=st.sampled_from(["MyISAM", "InnoDB", "Aria"])),
        sql("TRUNCATE {table}", table=TABLES),
    ],
}  # fmt: skip

_OWN_LOOKS: dict[str, Strategies] = {
    "sqlite": [
        sql("SELECT last_insert_rowid()"),
        sql("PRAGMA foreign_keys"),
        sql("PRAGMA user_version"),
        sql("SELECT * FROM m.t ORDER BY n"),
        sql("SELECT name, sql FROM sqlite_master ORDER BY name"),
        sql("EXPLAIN QUERY PLAN SELECT * FROM {table} WHERE v = 'one'", table=TABLES),
    ],
    "postgres": [
        sql("SELECT currval('q')"),
        sql("SELECT last_value, is_called FROM q"),
        sql("EXECUTE p ({n})", n=NUMBERS),
        sql("SELECT date '2024-02-29', 0.1::float8"),
        sql("SHOW datestyle"),
        sql("SELECT objid FROM pg_locks WHERE locktype = 'advisory' ORDER BY 1"),
        sql("EXPLAIN (COSTS OFF) SELECT * FROM {table} WHERE id = 3", table=TABLES),
        sql("SELECT 1 / 0"),
    ],
    "mariadb": [
        sql("SELECT @x, @@group_concat_max_len, @@autocommit, DATABASE()"),
        sql("SELECT LAST_INSERT_ID()"),
        sql("EXECUTE p"),
        sql("SELECT IS_FREE_LOCK('l1'), IS_FREE_LOCK('l2'), IS_FREE_LOCK('l3')"),
        sql("SELECT LASTVAL(q)"),
        sql("SHOW TABLES"),
        sql("SHOW CREATE TABLE {table}", table=TABLES),
        sql("SELECT FOUND_ROWS(), ROW_COUNT(), @@warning_count"),
        sql("SHOW WARNINGS"),
        sql("SELECT CAST('1x' AS INTEGER)"),
    ],
}


def sql_histories(system: str, *, longest: int) -> st.SearchStrategy[list[list[Call]]]:
    """Returns groups of rollouts that share prefixes, between whose calls each looks where it likes.

    Args:
        system: whose SQL it is.
        longest: how many calls that may change something a rollout has at most.
    """
    creates = [sql(text, table=TABLES) for text in _create(system)]
    look = st.one_of(*_LOOKS, *_OWN_LOOKS[system])
    change = st.one_of(*creates, *creates, *_CHANGES, *_OWN_CHANGES[system], *_OWN_CHANGES[system])

    @st.composite
    def group(draw: st.DrawFn) -> list[list[Call]]:
        def looked_between(calls: list[Call]) -> list[Call]:
            found = []
            for call in calls:
                found += [*draw(st.lists(look, max_size=2)), call]
            return [*found, *draw(st.lists(look, min_size=1, max_size=3))]

        first = [
            *draw(st.lists(st.one_of(*creates), max_size=2)),
            *draw(st.lists(change, min_size=2, max_size=longest)),
        ]
        found = [looked_between(first)]
        for _ in range(draw(st.integers(1, 2))):
            shared = draw(st.integers(len(first) // 2, len(first)))
            rest = draw(st.lists(change, max_size=max(longest - shared, 1)))
            found.append(looked_between([*first[:shared], *rest]))
        return found

    return group()
