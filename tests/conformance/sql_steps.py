"""What changes a database or a session, and what does not: sequences of calls for each database system."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One call, and what it is to come to.

    Attributes:
        query: for `sql`; after `$ ` a command for `bash`, `schema` for that tool.
        changed: whether the state must be another afterwards; None where either is right.
        fails: the database system must refuse it.
    """

    query: str
    changed: bool | None
    fails: bool = False


def reads(*queries: str) -> list[Step]:
    return [Step(query, False) for query in queries]


def changes(*queries: str) -> list[Step]:
    return [Step(query, True) for query in queries]


def refused(*queries: str) -> list[Step]:
    """Fails, and leaves everything as it was."""
    return [Step(query, False, fails=True) for query in queries]


def prepares(*queries: str) -> list[Step]:
    return [Step(query, None) for query in queries]


# Mere reads, in no particular order: of tables, of the catalog, failing ones.
READS: dict[str, list[str]] = {
    "sqlite": [
        "SELECT * FROM items",
        "SELECT COUNT(*), MAX(price) FROM items",
        "SELECT i.name, COUNT(*) FROM items i JOIN orders o ON o.item = i.id GROUP BY i.name ORDER BY 2 DESC, 1",
        "WITH x AS (SELECT id FROM items) SELECT * FROM x ORDER BY id DESC LIMIT 2",
        "SELECT name, row_number() OVER (ORDER BY price) FROM items",
        "SELECT upper(name), substr(name, 2), date('2024-01-31', '+1 month') FROM items",
        "SELECT * FROM nowhere",
        "SELEC",
        "PRAGMA table_info(items)",
        "SELECT name FROM sqlite_master ORDER BY name",
        "EXPLAIN QUERY PLAN SELECT * FROM orders WHERE item = 2",
        "VALUES (1), (2)",
        "schema",
    ],
    "postgres": [
        "SELECT * FROM items",
        "SELECT COUNT(*), MAX(price) FROM items",
        "SELECT i.name, COUNT(*) FROM items i JOIN orders o ON o.item = i.id GROUP BY i.name ORDER BY 2 DESC, 1",
        "WITH x AS (SELECT id FROM items) SELECT * FROM x ORDER BY id DESC LIMIT 2",
        "SELECT name, row_number() OVER (ORDER BY price) FROM items",
        "SELECT upper(name), left(name, 2), date '2024-01-31' + interval '1 month' FROM items",
        "SELECT * FROM nowhere",
        "SELECT 1 / 0",
        "SELEC",
        "SHOW search_path",
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1",
        "EXPLAIN SELECT * FROM orders WHERE item = 2",
        "SELECT string_agg(n::text, ',') FROM generate_series(1, 20000) AS n HAVING COUNT(*) > 1",
        "TABLE orders",
        "schema",
    ],
    "mariadb": [
        "SELECT * FROM items",
        "SELECT COUNT(*), MAX(price) FROM items",
        "SELECT i.name, COUNT(*) FROM items i JOIN orders o ON o.item = i.id GROUP BY i.name ORDER BY 2 DESC, 1",
        "WITH x AS (SELECT id FROM items) SELECT * FROM x ORDER BY id DESC LIMIT 2",
        "SELECT name, row_number() OVER (ORDER BY price) FROM items",
        "SELECT UPPER(name), LEFT(name, 2), DATE '2024-01-31' + INTERVAL 1 MONTH FROM items",
        "SELECT * FROM nowhere",
        "SELEC",
        "SHOW TABLES",
        "SHOW CREATE TABLE orders",
        "DESCRIBE items",
        "SELECT table_name FROM information_schema.columns WHERE table_schema = 'shop' ORDER BY 1, ordinal_position",
        "EXPLAIN SELECT * FROM orders WHERE item = 2",
        "SELECT MD5(a.seq) AS h, COUNT(*) FROM seq_1_to_20000 a GROUP BY h ORDER BY h LIMIT 3",
        "SELECT 1 / 0, CAST('1x' AS INTEGER)",
        "schema",
    ],
}

_DATA = [
    *changes("INSERT INTO items VALUES (10, 'fig', 3)"),
    *changes("UPDATE items SET price = 4 WHERE id = 10"),
    *prepares("UPDATE items SET price = 4 WHERE id = 999"),  # where the session tells how many rows were changed last
    *reads("UPDATE items SET price = 4 WHERE id = 999", "DELETE FROM items WHERE id = 999"),
    *changes("DELETE FROM items WHERE id = 10"),
    *changes("CREATE TABLE t (id INTEGER PRIMARY KEY, v VARCHAR(10))"),
    *changes("CREATE INDEX t_v ON t (v)", "ALTER TABLE t ADD COLUMN w INTEGER"),
    *changes("CREATE VIEW looking AS SELECT v FROM t"),
    *reads("SELECT * FROM looking", "SELECT * FROM t"),
    *changes("INSERT INTO t (id, v) SELECT id, name FROM items"),
    *changes("DROP VIEW looking", "DELETE FROM t", "DROP TABLE t"),
]
_TRANSACTIONS = [
    *changes("BEGIN"),
    *changes("INSERT INTO items VALUES (10, 'fig', 3)"),
    *changes("SAVEPOINT a", "INSERT INTO items VALUES (11, 'kiwi', 3)", "ROLLBACK TO SAVEPOINT a"),
    *changes("RELEASE SAVEPOINT a"),
    *changes("COMMIT", "BEGIN", "DELETE FROM items WHERE id > 3", "ROLLBACK"),
    *changes("BEGIN; INSERT INTO items VALUES (12, 'date', 1); COMMIT"),
]
_TEMPORARY = [
    *changes("CREATE TEMPORARY TABLE w (n INTEGER)"),
    *changes("INSERT INTO w VALUES (1)"),
    *reads("SELECT * FROM w"),
    *changes("UPDATE w SET n = 2", "DELETE FROM w", "DROP TABLE w"),
]
_TERMINAL = [
    *changes("$ ls /", "$ cat /etc/hostname"),  # programs of the agent's may change the database system's processes
    *reads("SELECT name FROM items ORDER BY id"),
    *changes("$ echo x > /root/file", "$ x=1", "$ cd /tmp"),
]

STEPS: dict[str, dict[str, list[Step]]] = {
    "sqlite": {
        "data": [
            *_DATA,
            *refused("SELEC 1", "SELECT * FROM nowhere", "INSERT INTO nowhere VALUES (1)"),
            *changes("REPLACE INTO items VALUES (1, 'apple', 7)"),
            *changes("UPDATE items SET price = 8 WHERE id = 1 RETURNING price"),
        ],
        "transactions": [*_TRANSACTIONS, *changes("BEGIN IMMEDIATE", "ROLLBACK", "SAVEPOINT s", "RELEASE s")],
        "temporary": [*_TEMPORARY, *changes("CREATE TEMP VIEW v AS SELECT 1"), *reads("SELECT * FROM v")],
        "session": [
            *changes("PRAGMA foreign_keys = ON"),
            *reads("PRAGMA foreign_keys", "SELECT last_insert_rowid(), changes() >= 0"),
            *changes("PRAGMA user_version = 5", "PRAGMA cache_size = 100", "PRAGMA case_sensitive_like = ON"),
            *changes("ATTACH ':memory:' AS m", "CREATE TABLE m.t (n)", "INSERT INTO m.t VALUES (1)", "DETACH m"),
            *changes("INSERT INTO items VALUES (30, 'x', 1)", "DELETE FROM items WHERE id = 30"),
        ],
        "hidden": [
            *changes("CREATE TABLE log (n)"),
            *changes(
                "CREATE TRIGGER audit AFTER UPDATE ON items BEGIN "
                "INSERT INTO log VALUES (new.id); INSERT INTO log VALUES (-new.id); END"
            ),
            *changes("UPDATE items SET name = name WHERE id = 1"),
            *reads("SELECT * FROM log"),
        ],
        "terminal": [
            *_TERMINAL,
            *changes("""$ sqlite3 /srv/sqlite/shop.db "INSERT INTO items VALUES (20, 'lime', 1)" """),
            *reads("SELECT COUNT(*) FROM items WHERE id = 20"),
        ],
    },
    "postgres": {
        "data": [
            *_DATA,
            *refused("SELEC 1", "SELECT * FROM nowhere", "INSERT INTO nowhere VALUES (1)"),
            *changes("TRUNCATE orders", "COMMENT ON TABLE items IS 'things'"),
            *changes("UPDATE items SET price = 8 WHERE id = 1 RETURNING price"),
            *changes("WITH gone AS (DELETE FROM items WHERE id = 3 RETURNING id) SELECT * FROM gone"),
            *changes("SELECT * INTO copied FROM items"),
        ],
        "transactions": [
            *_TRANSACTIONS,
            *changes("BEGIN"),
            *prepares("SELECT * FROM items"),  # which others may not alter until the end
            *reads("SELECT * FROM items"),
            Step("SELECT 1 / 0", True, fails=True),
            Step("SELECT 1", None, fails=True),
            *changes("ROLLBACK"),
            *changes("BEGIN ISOLATION LEVEL REPEATABLE READ"),
            *prepares("SELECT * FROM items"),
            *changes("COMMIT", "BEGIN", "SELECT * FROM items FOR UPDATE", "ROLLBACK", "BEGIN; LOCK TABLE items"),
        ],
        "temporary": [*_TEMPORARY, *changes("CREATE TEMP SEQUENCE tq", "SELECT nextval('tq')")],
        "session": [
            *changes("SET search_path = public, pg_catalog", "SET my.value = 'x'", "SET my.value = 'y'"),
            *reads("SHOW search_path", "SELECT current_setting('my.value')"),
            *changes("SELECT set_config('my.value', 'z', false)", "RESET my.value"),
            *changes("PREPARE p AS SELECT 1"),
            *reads("SELECT name FROM pg_prepared_statements"),
            *prepares("EXECUTE p"),
            *changes("DEALLOCATE p", "LISTEN news", "UNLISTEN news"),
            *changes("SELECT pg_advisory_lock(5)", "SELECT pg_advisory_unlock(5)"),
            *changes("BEGIN", "SELECT pg_advisory_xact_lock(7)", "DECLARE c CURSOR FOR SELECT * FROM items"),
            *changes("FETCH 1 FROM c", "MOVE 1 FROM c", "CLOSE c", "COMMIT"),
            *changes("CREATE ROLE someone", "SET ROLE someone", "RESET ROLE", "SELECT setseed(0.5)"),
        ],
        "sequences": [
            *changes("CREATE SEQUENCE q", "SELECT nextval('q')"),
            *reads("SELECT currval('q'), lastval()", "SELECT last_value FROM q"),
            *changes("SELECT setval('q', 50)", "SELECT nextval('q')"),
            *changes("CREATE VIEW nexts AS SELECT nextval('q') AS n", "SELECT * FROM nexts", "SELECT n FROM nexts"),
            *changes("CREATE FUNCTION bump() RETURNS bigint LANGUAGE sql AS $$ SELECT nextval('q') $$"),
            *changes("SELECT bump()"),
            *changes("SELECT nextval('q'); ROLLBACK"),
        ],
        "hidden": [
            *changes("CREATE TABLE log (n integer)"),
            *changes(
                "CREATE FUNCTION note() RETURNS integer LANGUAGE sql AS $$ INSERT INTO log VALUES (1); SELECT 1 $$"
            ),
            *changes("SELECT note()", "CREATE VIEW noting AS SELECT note()", "SELECT * FROM noting"),
            *changes("CREATE PROCEDURE noted() LANGUAGE sql AS $$ INSERT INTO log VALUES (2) $$", "CALL noted()"),
            *changes("DO $$ BEGIN INSERT INTO log VALUES (3); END $$"),
            *reads("SELECT * FROM log"),
            *reads("EXPLAIN INSERT INTO log VALUES (5)", "SELECT COUNT(*) FROM log"),
        ],
        "terminal": [
            *_TERMINAL,
            *changes("""$ psql -q -d shop -c "INSERT INTO items VALUES (20, 'lime', 1)" """),
            *reads("SELECT COUNT(*) FROM items WHERE id = 20"),
        ],
    },
    "mariadb": {
        "data": [
            *_DATA,
            *refused("SELEC 1", "SELECT * FROM nowhere", "INSERT INTO nowhere VALUES (1)"),
            *changes("REPLACE INTO items VALUES (3, 'plum', 7)", "TRUNCATE orders"),
            *changes("CREATE TABLE m (n INTEGER) ENGINE = MyISAM", "INSERT INTO m VALUES (1)", "UPDATE m SET n = 2"),
            *changes("CREATE TABLE a (n INTEGER) ENGINE = Aria", "INSERT INTO a VALUES (1)", "DELETE FROM a"),
            *changes("CREATE TABLE h (n INTEGER) ENGINE = MEMORY", "INSERT INTO h VALUES (1)"),
            *reads("SELECT * FROM m", "SELECT * FROM a", "SELECT * FROM h"),
            *changes("CREATE USER someone@localhost", "CREATE DATABASE d", "DROP DATABASE d"),
        ],
        "transactions": [
            *_TRANSACTIONS,
            *changes("START TRANSACTION", "SELECT * FROM items FOR UPDATE", "ROLLBACK"),
            *changes("SET autocommit = 0", "SET autocommit = 1"),
            *changes("LOCK TABLES items READ", "UNLOCK TABLES"),
        ],
        "temporary": _TEMPORARY,
        "session": [
            *changes("SET @a = 1", "SET @a = 2", "SELECT @a := 3", "SELECT id INTO @b FROM items WHERE id = 1"),
            *reads("SELECT @a, @b", "SELECT @@autocommit"),
            *changes("SET SESSION sql_mode = 'ANSI_QUOTES'", "SET SESSION group_concat_max_len = 100"),
            *changes("PREPARE p FROM 'SELECT 1'"),
            *prepares("EXECUTE p"),
            *changes("DEALLOCATE PREPARE p"),
            *changes("SELECT GET_LOCK('l', 0)", "SELECT RELEASE_LOCK('l')", "DO GET_LOCK('l', 0)"),
            *changes("USE spare", "USE shop", "SELECT LAST_INSERT_ID(50)"),
            *reads("SELECT LAST_INSERT_ID(), DATABASE()"),
        ],
        "sequences": [
            *changes("CREATE SEQUENCE q", "SELECT NEXTVAL(q)", "SELECT NEXT VALUE FOR q"),
            *reads("SELECT LASTVAL(q)", "SELECT PREVIOUS VALUE FOR q"),
            *changes("SELECT SETVAL(q, 50)", "CREATE VIEW nexts AS SELECT NEXTVAL(q) AS n", "SELECT * FROM nexts"),
            *changes("SELECT n FROM nexts"),
            *changes("CREATE FUNCTION bump() RETURNS BIGINT RETURN NEXTVAL(q)", "SELECT bump()", "SELECT bump()"),
            *changes("CREATE TABLE auto (id INTEGER PRIMARY KEY AUTO_INCREMENT)", "INSERT INTO auto VALUES (NULL)"),
        ],
        "hidden": [
            *changes("CREATE TABLE log (n INTEGER)"),
            *changes("CREATE PROCEDURE noted() INSERT INTO log VALUES (1)", "CALL noted()"),
            *changes("DELIMITER //\nCREATE PROCEDURE again() BEGIN CALL noted(); END//\nDELIMITER ;\nCALL again();"),
            *changes("CREATE FUNCTION note() RETURNS INTEGER BEGIN INSERT INTO log VALUES (2); RETURN 1; END"),
            *changes("SELECT note()", "CREATE VIEW noting AS SELECT note() AS n", "SELECT * FROM noting"),
            *changes("CREATE FUNCTION keep() RETURNS INTEGER BEGIN SET @kept = 5; RETURN 1; END", "SELECT keep()"),
            *changes("CREATE VIEW locking AS SELECT GET_LOCK('hidden', 0) AS l", "SELECT * FROM locking"),
            *changes("/*!50000 INSERT INTO log VALUES (3) */"),
            *reads("SELECT * FROM log"),
            *reads("EXPLAIN INSERT INTO log VALUES (5)", "SELECT COUNT(*) FROM log"),
        ],
        "terminal": [
            *_TERMINAL,
            *changes("""$ mariadb shop -e "INSERT INTO items VALUES (20, 'lime', 1)" """),
            *reads("SELECT COUNT(*) FROM items WHERE id = 20"),
        ],
    },
}
