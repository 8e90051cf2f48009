"""What is left to chance or the clock though no word of a statement says so: cases for the tests of all systems."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Written:
    """A change whose words name no chance.

    Attributes:
        made: what is made first.
        change: the change.
        shown: a query of one value that it wrote.
        found: a query of how many rows have that value, with `{}` for it.
    """

    made: tuple[str, ...]
    change: str
    shown: str
    found: str = "SELECT count(*) FROM h WHERE k = '{}'"


_SHOWN = "SELECT k FROM h"
_INSERT = "INSERT INTO h (n) VALUES (1)"

WRITTEN: dict[str, dict[str, Written]] = {
    "sqlite": {
        "default": Written(("CREATE TABLE h (n INTEGER, k TEXT DEFAULT (hex(randomblob(16))))",), _INSERT, _SHOWN),
        "clock": Written(
            ("CREATE TABLE h (n INTEGER, k TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')))",), _INSERT, _SHOWN
        ),
        "trigger": Written(
            (
                "CREATE TABLE h (n INTEGER, k TEXT)",
                "CREATE TRIGGER t AFTER INSERT ON h BEGIN UPDATE h SET k = hex(randomblob(16)) WHERE n = new.n; END",
            ),
            _INSERT,
            _SHOWN,
        ),
        "view": Written(
            ("CREATE TABLE h (n INTEGER, k TEXT)", "CREATE VIEW r AS SELECT 1 AS n, hex(randomblob(16)) AS k"),
            "INSERT INTO h SELECT * FROM r",
            _SHOWN,
        ),
    },
    "postgres": {
        "default": Written(("CREATE TABLE h (n integer, k uuid DEFAULT gen_random_uuid())",), _INSERT, _SHOWN),
        "clock": Written(("CREATE TABLE h (n integer, k timestamptz DEFAULT now())",), _INSERT, _SHOWN),
        "keyword": Written(("CREATE TABLE h (n integer, k timestamptz DEFAULT CURRENT_TIMESTAMP)",), _INSERT, _SHOWN),
        "trigger": Written(
            (
                "CREATE TABLE h (n integer, k uuid)",
                "CREATE FUNCTION draw() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN NEW.k := gen_random_uuid(); RETURN NEW; END $$",
                "CREATE TRIGGER t BEFORE INSERT ON h FOR EACH ROW EXECUTE FUNCTION draw()",
            ),
            _INSERT,
            _SHOWN,
        ),
        "rule": Written(
            (
                "CREATE TABLE h (n integer, k uuid)",
                "CREATE TABLE i (n integer)",
                "CREATE RULE u AS ON INSERT TO i DO ALSO INSERT INTO h VALUES (NEW.n, gen_random_uuid())",
            ),
            "INSERT INTO i VALUES (1)",
            _SHOWN,
        ),
        "cascade": Written(
            (
                "CREATE TABLE p (n integer PRIMARY KEY)",
                "CREATE TABLE q (n integer REFERENCES p ON DELETE CASCADE)",
                "CREATE TABLE h (n integer, k uuid)",
                "CREATE FUNCTION draw() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN INSERT INTO h VALUES (OLD.n, gen_random_uuid()); RETURN OLD; END $$",
                "CREATE TRIGGER t BEFORE DELETE ON q FOR EACH ROW EXECUTE FUNCTION draw()",
                "INSERT INTO p VALUES (1)",
                "INSERT INTO q VALUES (1)",
            ),
            "DELETE FROM p",
            _SHOWN,
        ),
        "partition": Written(
            (
                "CREATE TABLE b (n integer, k uuid) PARTITION BY RANGE (n)",
                "CREATE TABLE h PARTITION OF b (k DEFAULT gen_random_uuid()) FOR VALUES FROM (0) TO (9)",
            ),
            "INSERT INTO h (n) VALUES (1)",
            _SHOWN,
        ),
        "array default": Written(
            ("CREATE TABLE h (n integer, k timestamptz[] DEFAULT ('{now}'::text)::timestamptz[])",), _INSERT, _SHOWN
        ),
        "domain": Written(
            (
                "CREATE DOMAIN d AS timestamptz DEFAULT ('no' || 'w')::timestamptz",
                "CREATE TABLE h (n integer, k d)",
            ),
            _INSERT,
            _SHOWN,
        ),
        "argument": Written(
            (
                "CREATE TABLE h (n integer, k timestamptz)",
                "CREATE FUNCTION f(a timestamptz DEFAULT clock_timestamp()) RETURNS timestamptz "
                "LANGUAGE sql IMMUTABLE AS 'SELECT a'",
            ),
            "INSERT INTO h SELECT 1, f()",
            _SHOWN,
        ),
        "overloaded": Written(
            (
                "CREATE TABLE h (n integer, k timestamptz)",
                "CREATE FUNCTION lower(integer) RETURNS timestamptz LANGUAGE sql AS 'SELECT clock_timestamp()'",
            ),
            "INSERT INTO h SELECT 1, lower(5)",
            _SHOWN,
        ),
        "overloaded in a transaction": Written(
            (
                "CREATE TABLE h (n integer, k timestamptz)",
                "BEGIN",
                "CREATE FUNCTION lower(integer) RETURNS timestamptz LANGUAGE sql AS 'SELECT clock_timestamp()'",
            ),
            "INSERT INTO h SELECT 1, lower(5)",
            _SHOWN,
        ),
        "aggregate": Written(
            (
                "CREATE TABLE h (n integer, k timestamptz)",
                "CREATE FUNCTION next(timestamptz, integer) RETURNS timestamptz LANGUAGE sql "
                "AS 'SELECT clock_timestamp()'",
                "CREATE AGGREGATE most(integer) (sfunc = next, stype = timestamptz)",
            ),
            "INSERT INTO h SELECT 1, most(id) FROM items",
            _SHOWN,
        ),
        "column": Written(
            (
                "CREATE TABLE h (n integer, k timestamptz)",
                "CREATE FUNCTION at(items) RETURNS timestamptz LANGUAGE sql AS 'SELECT clock_timestamp()'",
            ),
            "INSERT INTO h SELECT items.id, items.at FROM items WHERE id = 1",
            _SHOWN,
        ),
        "implicit cast": Written(
            (
                "CREATE TABLE h (n integer, k timestamptz)",
                "CREATE CAST (text AS timestamptz) WITH INOUT AS ASSIGNMENT",
            ),
            "INSERT INTO h SELECT 1, 'no' || 'w'",
            _SHOWN,
        ),
        "foreign": Written(
            (
                "CREATE TABLE h (n integer, k text)",
                "CREATE EXTENSION file_fdw",
                "CREATE SERVER s FOREIGN DATA WRAPPER file_fdw",
                "CREATE FOREIGN TABLE f (k text) SERVER s OPTIONS (program 'date +%N')",
                "CREATE VIEW v AS SELECT * FROM f",
            ),
            "INSERT INTO h SELECT 1, k FROM v",
            _SHOWN,
        ),
        "deferred": Written(
            (
                "CREATE TABLE h (n integer, k uuid)",
                "CREATE TABLE i (n integer)",
                "CREATE FUNCTION draw() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN INSERT INTO h VALUES (NEW.n, gen_random_uuid()); RETURN NEW; END $$",
                "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON i DEFERRABLE INITIALLY DEFERRED "
                "FOR EACH ROW EXECUTE FUNCTION draw()",
                "BEGIN",
                "INSERT INTO i VALUES (1)",
            ),
            "COMMIT",
            _SHOWN,
        ),
        "in a transaction": Written(
            ("BEGIN", "CREATE TABLE h (n integer, k uuid DEFAULT gen_random_uuid())"), _INSERT, _SHOWN
        ),
        "prepared": Written(
            (
                "CREATE TABLE h (n integer, k uuid DEFAULT gen_random_uuid())",
                "PREPARE p AS INSERT INTO h (n) VALUES (1)",
            ),
            "EXECUTE p",
            _SHOWN,
        ),
        "block": Written(
            ("CREATE TABLE h (n integer, k uuid DEFAULT gen_random_uuid())",),
            "DO $$ BEGIN EXECUTE 'INS' || 'ERT INTO h (n) VALUES (1)'; END $$",
            _SHOWN,
        ),
        "function": Written(
            (
                "CREATE TABLE h (n integer, k uuid)",
                "CREATE FUNCTION put() RETURNS integer LANGUAGE sql AS "
                "$$ INSERT INTO h VALUES (1, gen_random_uuid()); SELECT 1 $$",
            ),
            "SELECT put()",
            _SHOWN,
        ),
        "procedure": Written(
            (
                "CREATE TABLE h (n integer, k uuid)",
                "CREATE PROCEDURE put() LANGUAGE sql AS $$ INSERT INTO h VALUES (1, gen_random_uuid()) $$",
            ),
            "CALL put()",
            _SHOWN,
        ),
    },
    "mariadb": {
        "default": Written(("CREATE TABLE h (n INTEGER, k VARCHAR(40) DEFAULT (UUID()))",), _INSERT, _SHOWN),
        "clock": Written(("CREATE TABLE h (n INTEGER, k DATETIME(6) DEFAULT NOW(6))",), _INSERT, _SHOWN),
        "on update": Written(
            (
                "CREATE TABLE h (n INTEGER, k DATETIME(6) DEFAULT '2020-01-01' ON UPDATE CURRENT_TIMESTAMP(6))",
                _INSERT,
            ),
            "UPDATE h SET n = 2",
            _SHOWN,
        ),
        "temporary": Written(
            ("CREATE TEMPORARY TABLE h (n INTEGER, k VARCHAR(40) DEFAULT (UUID()))",), _INSERT, _SHOWN
        ),
        "trigger": Written(
            (
                "CREATE TABLE h (n INTEGER, k VARCHAR(40))",
                "CREATE TRIGGER t BEFORE INSERT ON h FOR EACH ROW SET NEW.k = UUID()",
            ),
            _INSERT,
            _SHOWN,
        ),
        "trigger of a trigger": Written(
            (
                "CREATE TABLE h (n INTEGER, k VARCHAR(40) DEFAULT (UUID()))",
                "CREATE TABLE i (n INTEGER)",
                "CREATE TRIGGER t BEFORE INSERT ON i FOR EACH ROW INSERT INTO h (n) VALUES (NEW.n)",
            ),
            "INSERT INTO i VALUES (1)",
            _SHOWN,
        ),
        "prepared": Written(
            (
                "CREATE TABLE h (n INTEGER, k VARCHAR(40) DEFAULT (UUID()))",
                "SET @q = 'INSERT INTO h (n) VALUES (1)'",
                "PREPARE p FROM @q",
            ),
            "EXECUTE p",
            _SHOWN,
        ),
        "procedure": Written(
            (
                "CREATE TABLE h (n INTEGER, k VARCHAR(40))",
                "CREATE PROCEDURE put() INSERT INTO h VALUES (1, UUID())",
            ),
            "CALL put()",
            _SHOWN,
        ),
        "null": Written(
            ("CREATE TABLE h (n INTEGER, k TIMESTAMP NOT NULL)",), "INSERT INTO h VALUES (1, NULL)", _SHOWN
        ),
        "implicit default": Written(
            (
                "SET explicit_defaults_for_timestamp = 0",
                "CREATE TEMPORARY TABLE h (n INTEGER, k TIMESTAMP)",
                "SET explicit_defaults_for_timestamp = 1",
            ),
            _INSERT,
            _SHOWN,
        ),
        "text put together": Written(
            ("EXECUTE IMMEDIATE CONCAT('CREATE TEMPORARY TABLE h (n INTEGER, k VARCHAR(40) DEFAULT (UU', 'ID()))')",),
            _INSERT,
            _SHOWN,
        ),
        "time of day": Written(
            (
                "CREATE TABLE h (n INTEGER, k DATETIME)",
                "CREATE TABLE i (k TIME)",
                "INSERT INTO i VALUES ('10:00')",
                "CREATE VIEW v AS SELECT * FROM i",
            ),
            "INSERT INTO h SELECT 1, k FROM v",
            _SHOWN,
        ),
        "made when": Written(
            ("CREATE TABLE i (n INTEGER)",),
            "CREATE TRIGGER h BEFORE INSERT ON i FOR EACH ROW SET NEW.n = 1",
            "SELECT created FROM information_schema.triggers WHERE trigger_name = 'h'",
            "SELECT COUNT(*) FROM information_schema.triggers WHERE created = '{}'",
        ),
    },
}

READ: dict[str, dict[str, tuple[tuple[str, ...], str]]] = {
    "sqlite": {
        "view": (("CREATE VIEW r AS SELECT random() AS n",), "SELECT n FROM r"),
        "view of a view": (
            ("CREATE VIEW r AS SELECT strftime('%f', 'now') || random() AS n", "CREATE VIEW s AS SELECT * FROM r"),
            "SELECT n FROM s",
        ),
        "data": (
            ("CREATE TABLE w (m TEXT)", "INSERT INTO w VALUES ('no' || 'w')"),
            "SELECT strftime('%Y-%m-%d %H:%M:%f', m) FROM w",
        ),
    },
    "postgres": {
        "view": (("CREATE VIEW r AS SELECT random() AS n",), "SELECT n FROM r"),
        "view of a view": (
            ("CREATE VIEW r AS SELECT clock_timestamp() AS n", "CREATE VIEW s AS SELECT * FROM r"),
            "SELECT n FROM s",
        ),
        "quoted": (('CREATE VIEW "A ""view" AS SELECT random() AS n',), 'SELECT n FROM "A ""view"'),
        "server": (("CREATE VIEW r AS SELECT pg_backend_pid() AS n, clock_timestamp()",), "SELECT * FROM r"),
        "in a transaction": (("BEGIN", "CREATE VIEW r AS SELECT random() AS n", "SELECT n FROM r"), "SELECT n FROM r"),
        "pgcrypto": (("CREATE EXTENSION IF NOT EXISTS pgcrypto",), "SELECT gen_salt('bf')"),
    },
    "mariadb": {
        "view": (("CREATE VIEW r AS SELECT RAND() AS n",), "SELECT n FROM r"),
        "view of a view": (
            ("CREATE VIEW r AS SELECT SYSDATE(6) AS n", "CREATE VIEW s AS SELECT * FROM r"),
            "SELECT n FROM s",
        ),
        "view of a function": (
            ("CREATE FUNCTION draw() RETURNS DOUBLE RETURN RAND()", "CREATE VIEW r AS SELECT draw() AS n"),
            "SELECT n FROM r",
        ),
        "virtual": (
            (
                "CREATE TABLE w (m INTEGER, n DOUBLE AS (RAND()) VIRTUAL)",
                "INSERT INTO w (m) VALUES (1)",
            ),
            "SELECT n, m FROM w",
        ),
    },
}
"""What is made first, and a query that says something else each time, and changes nothing."""

EXPIRING: dict[str, tuple[str, str]] = {
    "sqlite": (
        "CREATE TABLE x AS SELECT julianday('now') + 1.2 / 86400 AS until",
        "CREATE VIEW valid AS SELECT * FROM x WHERE until > julianday('now')",
    ),
    "postgres": (
        "CREATE TABLE x AS SELECT clock_timestamp() + interval '1.2 s' AS until",
        "CREATE VIEW valid AS SELECT * FROM x WHERE until > now()",
    ),
    "mariadb": (
        "CREATE TABLE x AS SELECT SYSDATE(6) + INTERVAL 1200000 MICROSECOND AS until",
        "CREATE VIEW valid AS SELECT * FROM x WHERE until > NOW(6)",
    ),
}

# In PostgreSQL, what is written by way of text that may be the time, or by a time of day that has the zone of today.
MOMENTS_MADE = (
    "CREATE TABLE h (d timestamptz, a timestamptz[], r tstzrange, z timetz, s text)",
    "CREATE TABLE j (b jsonb)",
    "INSERT INTO j SELECT jsonb_build_object('d', 'no' || 'w')",
)
MOMENTS = [
    "INSERT INTO h (a) VALUES ('{now}')",
    "INSERT INTO h (r) VALUES ('[now,)')",
    "INSERT INTO h (d) VALUES (E'\\x6eow')",
    "INSERT INTO h (d) VALUES ($q$now$q$)",
    "INSERT INTO h (d) VALUES ('no'\n'w')",
    "INSERT INTO h (d) VALUES (U&'\\006eow')",
    "INSERT INTO h (d) VALUES (('no' || 'w')::timestamptz)",
    "INSERT INTO h (d) VALUES (CAST(reverse('won') AS timestamptz))",
    "INSERT INTO h (d) VALUES (timestamptz('no' || 'w'))",
    "INSERT INTO h (d) SELECT (b->>'d')::timestamptz FROM j",
    "INSERT INTO h (d) SELECT x.d FROM j, jsonb_to_record(b) AS x(d timestamptz)",
    "INSERT INTO h (z) VALUES ('10:00')",
    "CREATE TABLE i (d timestamptz DEFAULT 'now')",
    "CREATE TABLE k (r tstzrange CHECK (r && '[now,)'))",
    "CREATE INDEX ON h (d) WHERE r && '[now,)'",
    "CREATE DOMAIN e AS timestamptz DEFAULT 'now'",
]

# What is not left to chance, however it looks.
PURE: dict[str, list[str]] = {
    "sqlite": [
        "CREATE TABLE p (id INTEGER PRIMARY KEY, made TEXT DEFAULT CURRENT_TIMESTAMP, n INTEGER)",
        "INSERT INTO p VALUES (1, '2020-01-01', 1)",
        "UPDATE p SET n = 2",
        "DELETE FROM p",
    ],
    "postgres": [
        "CREATE TABLE p (id serial PRIMARY KEY, n integer CHECK (n > 0))",
        "INSERT INTO p (n) VALUES (1), (2)",
        "CREATE FUNCTION twice(integer) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 2 * $1'",
        "UPDATE p SET n = n + 1 WHERE id = 1",
        "DELETE FROM p WHERE id = 2",
        "CREATE INDEX p_n ON p (n)",
        "CREATE FUNCTION lower(integer) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1::text'",
        "CREATE FUNCTION counted() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM p'",
        "CREATE TABLE q (d timestamptz, a text[])",
        "INSERT INTO q VALUES ('2024-01-01'::timestamptz, '{a,b}'), ('2024-01-02', ARRAY['c']::text[])",
        "INSERT INTO q (a) VALUES (ARRAY[lower(5), 'knows'])",
    ],
    "mariadb": [
        "INSERT INTO items VALUES (60, 'p', 1)",
        "UPDATE items SET price = price + 1 WHERE id = 60",
        "DELETE FROM items WHERE id = 60",
        "SET explicit_defaults_for_timestamp = 0",
    ],
}
