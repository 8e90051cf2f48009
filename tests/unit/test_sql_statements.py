"""What statements do by their words, for the three database systems."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tvsnap.plugins.sql.inside.lexemes import SystemName
from tvsnap.plugins.sql.statements import LONGEST, Effects, effects

CODES = {
    "r": Effects("read"),
    "rs": Effects("read", stochastic=True),
    "w": Effects("write"),
    "wv": Effects("write", volatile=True),
    "wsv": Effects("write", stochastic=True, volatile=True),
    "ws": Effects("write", stochastic=True),
    "o": Effects("other"),
    "os": Effects("other", stochastic=True),
    "ov": Effects("other", volatile=True),
    "osv": Effects("other", stochastic=True, volatile=True),
}

EVERYWHERE = """
r    SELECT 1
r    select count(*), sum(a), lower(trim(b)) from t where a in (1, 2) and (b like 'x%' or exists (select 1 from u))
r    SELECT a FROM t UNION ALL (SELECT b FROM u) ORDER BY 1 LIMIT 3
r    (SELECT 1) UNION (SELECT 2)
r    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT i FROM n
r    WITH a AS (SELECT 1), b (x, y) AS (SELECT 1, 2) SELECT * FROM a, b
r    SELECT row_number() OVER (PARTITION BY a ORDER BY b), rank() over w FROM t WINDOW w AS (ORDER BY a)
r    SELECT CASE WHEN a > 1 THEN coalesce(b, 'n') ELSE nullif(b, '') END FROM t
r    SELECT CAST(a AS DECIMAL(10, 2)) FROM t
r    SELECT now FROM t
r    SELECT t.current_date_x, t.random FROM t
r    SELECT 'random() /* not a comment' -- now(), nextval('s')
r    SELECT 1 /* now(); DROP TABLE t */
r    VALUES (1, 2), (3, 4)
r    SELECT 1; SELECT 2;
r    -- nothing
r    ;
r    SELECT replace(a, 'x', 'y') FROM t
rs   SELECT CURRENT_TIMESTAMP
rs   SELECT * FROM t WHERE d < CURRENT_DATE
w    INSERT INTO t VALUES (1, 'a')
w    INSERT INTO t (a, b) VALUES (1, 'SELECT random()')
w    INSERT INTO s.t (a, b) SELECT a, upper(b) FROM u
w    UPDATE t SET a = a + 1 WHERE b = 'x'
w    DELETE FROM t
w    DELETE FROM t RETURNING a
w    SELECT 1; DELETE FROM t
w    CREATE TABLE t (a INTEGER PRIMARY KEY, b VARCHAR(10) NOT NULL DEFAULT 'x', UNIQUE (b))
w    CREATE TABLE IF NOT EXISTS t (a INT, made TIMESTAMP DEFAULT CURRENT_TIMESTAMP, FOREIGN KEY (a) REFERENCES u(a))
w    CREATE TABLE t AS SELECT a, lower(b) FROM u
w    CREATE TEMPORARY TABLE t (a INT)
w    CREATE UNIQUE INDEX i ON t (a, b)
w    CREATE VIEW v AS SELECT CURRENT_TIMESTAMP AS x
w    DROP TABLE IF EXISTS t
w    DROP VIEW v
w    ALTER TABLE t ADD COLUMN c INT
w    ALTER TABLE t RENAME TO u
wv   INSERT INTO t VALUES (CURRENT_TIMESTAMP)
wv   UPDATE t SET a = CURRENT_TIMESTAMP WHERE b = 1
wv   CREATE TABLE t AS SELECT CURRENT_DATE AS d
wsv  UPDATE t SET a = 1 WHERE d < CURRENT_DATE
wsv  INSERT INTO t VALUES (1) RETURNING CURRENT_TIMESTAMP
o    SELECT my_function(1)
o    SELECT other.lower('X')
o    SELECT a FROM t WHERE my_function(b) > lower(c)
o    SELECT my_function FROM t WHERE my_function (1) = 2
o    INSERT INTO t (a) VALUES (my_function(1))
o    BEGIN
o    COMMIT
o    ROLLBACK
o    SAVEPOINT a
o    ROLLBACK TO a
o    SELECT 1; COMMIT
o    \\d t
o    SELECT 'no end
o    GRANT ALL ON t TO me
o    The table has 3 rows.
osv  garbage, and CURRENT_DATE(
osv  SELECT my_function(1), CURRENT_TIMESTAMP
"""

SQLITE = """
r    SELECT date('2024-01-01'), strftime('%Y', d), datetime(d, '+1 day') FROM t
r    SELECT "a b", [c d], `e` FROM t
r    SELECT changes(), last_insert_rowid(), sqlite_version(), total_changes()
r    SELECT value FROM json_each('[1]')
r    SELECT name FROM pragma_table_info('t')
r    PRAGMA table_info(t)
r    PRAGMA main.table_info('t')
r    PRAGMA foreign_keys
r    PRAGMA user_version;
r    SELECT sql FROM sqlite_master WHERE type = 'table'
r    SELECT group_concat(a, ',') FILTER (WHERE a > 1) FROM t
r    SELECT 1 /* never ends
rs   SELECT random()
rs   SELECT * FROM t ORDER BY RANDOM() LIMIT 1
rs   SELECT date('now')
rs   SELECT date("now", 'start of month')
rs   SELECT strftime('%s', 'now')
rs   SELECT strftime('%s')
rs   SELECT datetime()
rs   SELECT unixepoch(), julianday ( )
rs   SELECT unixepoch('subsec')
rs   SELECT hex(randomblob(16))
rs   SELECT "random" FROM t WHERE a = random()
rs   EXPLAIN SELECT * FROM t WHERE a > date('now')
r    EXPLAIN QUERY PLAN SELECT * FROM t
r    EXPLAIN DELETE FROM t
w    REPLACE INTO t VALUES (1)
w    INSERT OR IGNORE INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET b = excluded.b
w    INSERT OR ROLLBACK INTO t VALUES (1)
w    WITH x AS (SELECT 1) DELETE FROM t WHERE a IN (SELECT * FROM x)
w    CREATE VIRTUAL TABLE f USING fts5(a, b)
wv   INSERT INTO t VALUES (datetime('now'))
wv   INSERT INTO t VALUES (random())
wsv  DELETE FROM t WHERE random() < 5
o    CREATE TRIGGER g AFTER INSERT ON t BEGIN UPDATE t SET a = 1; END
o    PRAGMA foreign_keys = ON
o    PRAGMA foreign_keys(0)
o    PRAGMA wal_checkpoint
o    PRAGMA optimize
o    ATTACH DATABASE 'x.db' AS x
o    VACUUM
o    ANALYZE
o    REINDEX t
o    SELECT load_extension('x')
o    SELECT writefile('x', 'y')
o    EXPLAIN PRAGMA user_version = 1
osv  SELECT "random"()
"""

POSTGRES = """
r    SELECT $1, $$random()$$, $tag$ nextval('s') $tag$, E'it\\'s random()', U&'x'
r    SELECT 1 /* outer /* nextval('s') */ still out */
r    SELECT a::varchar(10), b::numeric(10, 2), '2024-01-01'::date, interval '1 day' FROM t
r    SELECT * FROM generate_series(1, 3) AS g(i), unnest(ARRAY[1, 2]) u(x)
r    SELECT * FROM (VALUES (1, 'a')) v(a, b) JOIN LATERAL (SELECT 1) q ON true
r    SELECT pg_catalog.lower('X'), current_database(), current_user, version()
r    SELECT currval('s'), lastval(), pg_sleep(1), current_setting('x')
r    SELECT make_interval(days := 1), age(a, b) FROM t
r    SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a), count(*) FILTER (WHERE a > 1) FROM t
r    SELECT a, sum(b) FROM t GROUP BY GROUPING SETS ((a), ()), ROLLUP (a)
r    SELECT * FROM json_to_recordset('[]') AS x(a int, b text)
r    SELECT extract(year FROM d), substring(s FROM 1 FOR 2), position('a' IN s), d AT TIME ZONE ('UTC') FROM t
r    SELECT relname FROM pg_class WHERE relkind = 'r'
r    SELECT table_name FROM information_schema.tables
r    SELECT pg_size_pretty(pg_total_relation_size('t'))
r    SELECT * FROM films WHERE title = 'Unknown' OR title LIKE '%today%' OR title NOT ILIKE 'now' ESCAPE 'x'
r    SELECT (a || b)::timestamptz, CAST(lower(c) AS date), d AT TIME ZONE 'UTC', x->>'d' FROM t
r    SELECT 'knows', '2024-01-01'::date, '{nowhere}', E'k\\156ow'::text, $now$x$now$
r    TABLE t
r    SHOW search_path
r    SHOW ALL
r    EXPLAIN SELECT * FROM t
r    EXPLAIN (COSTS off, FORMAT json) UPDATE t SET a = 1
r    EXPLAIN VERBOSE INSERT INTO t VALUES (1)
r    WITH w AS NOT MATERIALIZED (SELECT 1) SELECT * FROM w FETCH FIRST (2) ROWS ONLY
rs   SELECT now()
rs   SELECT now() - interval '1 day'
rs   SELECT pg_catalog.now()
rs   SELECT "now" FROM "now" WHERE now() IS NULL; SELECT 1
rs   SELECT localtime, LOCALTIMESTAMP(0)
rs   SELECT clock_timestamp(), timeofday(), statement_timestamp()
rs   SELECT random(), gen_random_uuid()
rs   SELECT 'now'::timestamp
rs   SELECT * FROM t WHERE d > 'yesterday' AND e < date 'Tomorrow'
rs   SELECT timestamp 'today 10:00 UTC'
rs   SELECT age(born) FROM t
rs   SELECT '{now}'::timestamptz[]
rs   SELECT * FROM t WHERE r && '[now,)'
rs   SELECT '{[now,)}'::tstzmultirange
rs   SELECT '(now)'::t
rs   SELECT '"now"'::timestamptz
rs   SELECT 'now,'::timestamptz
rs   SELECT '%Today%'::date LIKE 'now'::date
rs   SELECT * FROM json_to_record('{"d": "now"}') AS x(d timestamptz)
rs   SELECT E'\\x6eow'::timestamptz
rs   SELECT E'n\\157w'::timestamptz
rs   SELECT e'\\u006eow'::timestamptz, 1
rs   SELECT E'\\U0000006eow'::timestamptz
rs   SELECT '\\x6eow'::timestamptz
rs   SELECT $q$now$q$::timestamptz
rs   SELECT U&'\\006eow'::timestamptz
rs   SELECT U&'!006eow' UESCAPE '!'
rs   SELECT time '10:00'::timetz
rs   SELECT a::time(3) with time zone FROM t
rs   SELECT time with time zone '10:00'
rs   SELECT mxid_age('1')
rs   SELECT title FROM films WHERE title = 'Apocalypse Now'
rs   SELECT pg_backend_pid(), txid_current_if_assigned()
rs   SELECT * FROM pg_stat_activity
rs   SELECT * FROM pg_catalog.pg_locks
rs   SELECT * FROM "pg_stat_user_tables"
rs   SELECT * FROM t TABLESAMPLE bernoulli (10)
rs   EXPLAIN ANALYZE SELECT * FROM t
rs   EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM t
rs   EXPLAIN SELECT * FROM t WHERE d < now()
ws   EXPLAIN ANALYZE DELETE FROM t
wsv  EXPLAIN ANALYZE INSERT INTO t VALUES (now())
w    SELECT * INTO u FROM t
w    WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone
w    INSERT INTO t AS x (a, b) VALUES (1, 2) ON CONFLICT (a) DO UPDATE SET (a, b) = (1, 2) RETURNING lower(b)
w    MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = 1 WHEN NOT MATCHED THEN INSERT (a) VALUES (1)
w    TRUNCATE t, u RESTART IDENTITY CASCADE
w    CREATE TABLE t (id serial, made timestamptz DEFAULT now(), u uuid DEFAULT gen_random_uuid())
w    CREATE INDEX ON t USING btree (lower(a), b)
w    CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM t
w    CREATE FUNCTION f() RETURNS int LANGUAGE sql AS $$ SELECT 1; SELECT random() $$
w    CREATE SEQUENCE s START 5
w    CREATE TYPE e AS ENUM ('a', 'b')
w    CREATE SCHEMA x
w    CREATE OR REPLACE VIEW v (a) AS SELECT f(1)
w    COMMENT ON TABLE t IS 'now()'
w    DROP MATERIALIZED VIEW m
w    ALTER TABLE t ADD CONSTRAINT c UNIQUE (a), ADD COLUMN d character varying(10)
wv   ALTER TABLE t ADD COLUMN d timestamptz DEFAULT now()
wv   INSERT INTO t VALUES (gen_random_uuid(), 'now')
wv   INSERT INTO t VALUES ('{now}')
wv   INSERT INTO t VALUES (('no' || 'w')::timestamptz)
wv   INSERT INTO t VALUES (CAST('no' || 'w' AS timestamptz))
wv   INSERT INTO t VALUES (CAST(CAST('x' AS text) AS pg_catalog.date))
wv   INSERT INTO t VALUES (TREAT(a AS date))
wv   INSERT INTO t VALUES (timestamptz(reverse('won')))
wv   INSERT INTO t SELECT tstzrange(a) FROM u
wv   INSERT INTO t VALUES (string_to_array('a,b', ',')::timestamptz[])
wv   INSERT INTO t SELECT (b->>'d')::timestamptz FROM u
wv   INSERT INTO t SELECT b::"text" FROM u
wv   INSERT INTO t SELECT b::public.text FROM u
wv   INSERT INTO t SELECT * FROM json_to_recordset(b) AS x(d timestamptz)
wv   INSERT INTO t SELECT x.* FROM u, xmltable('/a' PASSING b COLUMNS d date PATH 'd') AS x
wv   INSERT INTO t VALUES (time '10:00' AT TIME ZONE 'Europe/Berlin')
wv   INSERT INTO t VALUES ('10:00'::timetz)
wv   CREATE TABLE t (d timestamptz DEFAULT 'now')
wv   CREATE TABLE t (d timestamptz[] DEFAULT '{now}', CHECK (r && '[now,)'))
wv   CREATE TABLE t PARTITION OF u FOR VALUES FROM (CURRENT_DATE) TO (MAXVALUE)
wsv  CREATE INDEX ON t (a) WHERE r && '[now,)'
wv   CREATE VIEW v AS SELECT 'now'::timestamptz
wv   CREATE DOMAIN d AS timestamptz DEFAULT 'today'
wv   CREATE FUNCTION f(r tstzrange DEFAULT '[now,)') RETURNS int LANGUAGE sql AS 'SELECT 1'
wv   ALTER TABLE t ALTER c TYPE date USING c::date
w    CREATE FUNCTION f() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'
w    INSERT INTO t VALUES ('2024-01-01'::date, 5::numeric, (a || 'x')::text, CAST(b AS double precision))
w    INSERT INTO t SELECT a::int[], b::varchar(3), c::pg_catalog.jsonb, tstzrange(d, e), timestamp(3) '2024-01-01'
w    UPDATE t SET a = '{}'::jsonb, b = CAST('2024-01-01' AS date) WHERE c::regclass = 't'::regclass
wv   CREATE TABLE x AS SELECT random() AS r
wsv  UPDATE t SET a = random() RETURNING a, random()
o    SELECT nextval('s')
o    SELECT setval('s', 1)
o    SELECT set_config('a.b', 'c', false)
o    SELECT setseed(0.5)
o    SELECT pg_advisory_lock(1)
o    SELECT pg_catalog.pg_advisory_lock(1)
o    SELECT pg_notify('a', 'b')
o    SELECT txid_current()
o    SELECT lo_create(0)
o    SELECT dblink('a', 'b')
o    SELECT table_to_xml('v', true, true, '')
o    SELECT schema_to_xml('s', true, true, '')
o    SELECT database_to_xml(true, true, '')
o    SELECT cursor_to_xml('c', 1, true, true, '')
o    SELECT * FROM ts_stat('SELECT v FROM t')
o    SELECT ts_rewrite('a', 'SELECT a, b FROM t')
o    SELECT query_to_xml('select nextval(1)', true, true, '')
o    SELECT a[1:nextval('s')] FROM t
o    SELECT "lower"('X')
o    SELECT $$a$$, nextval('s')
o    SELECT * FROM t FOR UPDATE
o    SELECT * FROM t FOR NO KEY UPDATE SKIP LOCKED
o    SELECT * FROM t FOR SHARE
o    EXPLAIN SELECT nextval('s')
o    EXPLAIN EXECUTE p
o    CREATE TABLE x AS SELECT nextval('s')
o    CREATE EXTENSION pg_trgm
o    CREATE USER me
o    ALTER SYSTEM SET a = 1
o    ALTER DATABASE d SET a = 1
o    DROP OWNED BY me
o    REFRESH MATERIALIZED VIEW m
o    SET search_path TO x
o    RESET ALL
o    DISCARD ALL
o    LISTEN a
o    COPY t TO STDOUT
o    CALL p()
o    DO $$ BEGIN PERFORM 1; END $$
o    DECLARE c CURSOR FOR SELECT 1
o    FETCH 1 FROM c
o    PREPARE p AS SELECT 1
o    LOCK TABLE t
o    ANALYZE t
o    VACUUM
o    SELECT 1 /* no /* end */
osv  DO $$ BEGIN PERFORM random(); END $$
osv  DECLARE c CURSOR FOR SELECT now()
"""

MARIADB = """
r    SHOW TABLES
r    SHOW FULL TABLES FROM db LIKE 'a%'
r    SHOW CREATE TABLE t
r    SHOW COLUMNS FROM t
r    SHOW INDEX FROM t
r    SHOW DATABASES
r    SHOW WARNINGS
r    SHOW COUNT(*) WARNINGS
r    SHOW VARIABLES LIKE 'sql_mode'
r    SHOW GLOBAL VARIABLES LIKE 'innodb\\_%'
r    DESCRIBE t
r    DESC `now()`
r    EXPLAIN t
r    EXPLAIN FORMAT=JSON SELECT * FROM t
r    DESC SELECT 1
r    EXPLAIN EXTENDED UPDATE t SET a = 1
r    HELP 'select'
r    SELECT "now()", 'it\\'s rand()', "say ""now()"" twice"
r    SELECT 1 # now()
r    SELECT 5--1
r    SELECT 5--- now()
r    SELECT IF(a, LEFT(b, 2), INSERT('abc', 1, 1, 'x')), RAND(5), DATE_ADD('2024-01-01', INTERVAL 1 DAY) FROM t
r    SELECT UNIX_TIMESTAMP('2024-01-01'), LAST_INSERT_ID(), FOUND_ROWS(), ROW_COUNT(), SLEEP(0), DATABASE()
r    SELECT GROUP_CONCAT(DISTINCT a ORDER BY a SEPARATOR ',') FROM t USE INDEX (i)
r    SELECT * FROM t FORCE INDEX (i, j) WHERE MATCH (a) AGAINST ('x' IN BOOLEAN MODE)
r    SELECT @x, @@sql_mode, @@session.autocommit, ':='
r    SELECT table_name FROM information_schema.tables
r    SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'x'
r    SELECT * FROM information_schema.columns
r    SELECT * FROM events
r    SELECT * FROM tours, tables_of_numbers
r    SELECT * FROM JSON_TABLE('[1]', '$[*]' COLUMNS (a INT PATH '$')) AS j
r    SELECT CONVERT(a, CHAR(5)), `a`.`b` FROM a
r    SELECT * FROM t FOR SYSTEM_TIME AS OF '2024-01-01'
rs   SELECT NOW(), SYSDATE(6), CURDATE(), CURTIME(), UTC_TIMESTAMP
rs   SELECT RAND()
rs   SELECT * FROM t ORDER BY RAND() LIMIT 1
rs   SELECT UUID(), SYS_GUID()
osv  SELECT UUID_SHORT()
rs   SELECT UNIX_TIMESTAMP()
rs   SELECT CONNECTION_ID()
rs   SELECT 5--rand()
rs   SELECT @@timestamp, @@session.rand_seed1
rs   SHOW STATUS
rs   SHOW PROCESSLIST
rs   SHOW FULL PROCESSLIST
rs   SHOW ENGINE INNODB STATUS
rs   SHOW TABLE STATUS
rs   SHOW VARIABLES
rs   SHOW VARIABLES LIKE 'time%'
rs   SHOW EXPLAIN FOR 5
rs   EXPLAIN FOR CONNECTION 5
rs   SELECT * FROM information_schema.tables
rs   SELECT table_name, UPDATE_TIME FROM INFORMATION_SCHEMA.TABLES
rs   SELECT * FROM information_schema.processlist
rs   SELECT * FROM `information_schema`.`EVENTS`
rs   SELECT * FROM performance_schema.threads
rs   ANALYZE SELECT * FROM t
rs   ANALYZE FORMAT=JSON SELECT * FROM t
ws   ANALYZE UPDATE t SET a = 1
w    INSERT t (a, b) VALUES (1, 2)
w    INSERT IGNORE INTO t (a) VALUES (1) ON DUPLICATE KEY UPDATE a = VALUES(a) + 1
w    REPLACE INTO t SET a = 1
w    INSERT INTO t VALUES (DEFAULT, 1)
w    TRUNCATE TABLE t
w    RENAME TABLE t TO u
w    CREATE TABLE t (a INT AUTO_INCREMENT PRIMARY KEY, b DATETIME DEFAULT NOW() ON UPDATE NOW(), KEY k (b))
w    CREATE TABLE t LIKE u
w    CREATE DATABASE d
w    CREATE DEFINER=`me`@`here` PROCEDURE p() SELECT NOW()
w    CREATE INDEX i ON t (a(10), b)
w    ALTER TABLE t ADD INDEX i (a), ADD COLUMN c VARCHAR(10), ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES u (b)
w    DROP PROCEDURE p
wv   INSERT INTO t VALUES (NOW())
wv   INSERT INTO t VALUES (UUID()) ON DUPLICATE KEY UPDATE b = NOW()
wv   INSERT INTO t VALUES (TIME'10:00:00')
wv   INSERT INTO t VALUES ({t '10:00:00'})
wv   INSERT INTO t SELECT MAKETIME(a, 0, 0) FROM u
wv   INSERT INTO t VALUES (SEC_TO_TIME(5), TIMEDIFF(a, b))
wv   INSERT INTO t VALUES (CAST('10:00' AS TIME), 1)
wv   INSERT INTO t VALUES (CONVERT('10:00', TIME))
wv   INSERT INTO t VALUES (TIME(a))
w    INSERT INTO t (id, time, msg) VALUES (1, '10:00', 'x')
r    SELECT TIMEDIFF(a, b), TIME'10:00' FROM t
wv   CREATE EVENT e ON SCHEDULE AT CURRENT_TIMESTAMP DO DELETE FROM t
wsv  DELETE FROM t WHERE a < NOW() - INTERVAL 1 DAY
o    SELECT NEXTVAL(s)
o    SELECT NEXT VALUE FOR s
o    SELECT GET_LOCK('a', 1)
o    SELECT RELEASE_LOCK('a')
o    SELECT LAST_INSERT_ID(5)
o    UPDATE t SET a = LAST_INSERT_ID(a + 1)
o    SELECT LOAD_FILE('/etc/passwd')
o    SELECT @x := 1
o    SELECT 1 INTO @x
o    SELECT * FROM t INTO OUTFILE '/tmp/x'
o    SELECT merge INTO @x FROM t
o    SELECT * FROM t FOR UPDATE
o    SELECT * FROM t LOCK IN SHARE MODE
o    SELECT 5--nextval(s)
o    SELECT 1 /*!50000 , 2 */
o    SELECT 1 /*M! + 1 */
o    SELECT `lower`('X')
o    SELECT 1 /* no end
o    SET @x = 1
ov   SET @x = TIMESTAMP(TIME'10:00')
o    SET NAMES utf8mb4
o    SET sql_mode = 'NO_ZERO_DATE'
o    USE db
o    CALL p()
o    DO 1
o    START TRANSACTION
o    LOCK TABLES t READ
o    FLUSH TABLES
o    HANDLER t OPEN
o    KILL 5
o    ANALYZE TABLE t
o    OPTIMIZE TABLE t
o    CHECK TABLE t
o    LOAD DATA INFILE 'x' INTO TABLE t
o    CREATE USER me
o    CREATE FUNCTION f RETURNS STRING SONAME 'x.so'
o    DROP PREPARE p
o    DELIMITER //
o    CREATE PROCEDURE p() BEGIN SELECT 1; SELECT 2; END
osv  PREPARE p FROM 'SELECT NOW()'
osv  EXECUTE IMMEDIATE 'SELECT RAND()'
osv  SET @x = NOW()
osv  SELECT /*! NOW() */
"""


def _table(text: str, *dialects: SystemName) -> list[tuple[SystemName, str, str]]:
    rows = [line.split(None, 1) for line in text.strip().splitlines()]
    return [(dialect, query, code) for code, query in rows for dialect in dialects]


@pytest.mark.parametrize(
    ("dialect", "query", "code"),
    [
        *_table(EVERYWHERE, "sqlite", "postgres", "mariadb"),
        *_table(SQLITE, "sqlite"),
        *_table(POSTGRES, "postgres"),
        *_table(MARIADB, "mariadb"),
    ],
)
def test_a_statement(dialect: SystemName, query: str, code: str) -> None:
    assert effects(query, dialect) == CODES[code]


@pytest.mark.parametrize("gap", ["\n", " -- x\n "])
def test_a_literal_may_go_on_in_another_line(gap: str) -> None:
    assert effects(f"SELECT 'no'{gap}'w'::timestamptz", "postgres") == CODES["rs"]
    assert effects(f"INSERT INTO t VALUES ('no'{gap}'w')", "postgres") == CODES["wv"]
    assert effects(f"SELECT E'n'{gap}'\\157w'", "postgres") == CODES["rs"]
    assert effects(f"SELECT 'no'{gap}'where'", "postgres") == CODES["r"]


def test_nothing_at_all_is_a_read() -> None:
    assert effects("", "sqlite") == Effects("read")


def test_comments_end_as_the_system_has_it() -> None:
    assert effects("SELECT 1 --\n, my_function(1)", "mariadb").kind == "other"
    assert effects("SELECT 1 -- x\r, my_function(1)", "postgres").kind == "other"
    assert effects("SELECT 1 -- x\r, my_function(1)", "sqlite").kind == "read"


@pytest.mark.parametrize("dialect", ["sqlite", "postgres", "mariadb"])
@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\u2028"])
def test_only_ascii_spaces_part_words(dialect: SystemName, space: str) -> None:
    """`lower<no-break space>` is one name to the database systems, and not that of a built-in function."""
    assert effects(f"SELECT lower{space}('X')", dialect).kind == "other"


def test_letters_that_only_look_alike_make_no_known_word() -> None:
    assert effects("SELECT ran\u212a()", "postgres").kind == "other"
    assert effects("\u017fELECT 1", "sqlite").kind == "other"


@pytest.mark.parametrize("dialect", ["sqlite", "postgres", "mariadb"])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT " + "(" * 20_000,
        "SELECT " + "my_function(" * 5_000 + "1" + ")" * 5_000,
        "SELECT " + "strftime(" * 10_000,
        "WITH c(a) AS (SELECT 1) SELECT " + "NOT " * 2_000 + "1 FROM c",
        "WITH c(a) AS (SELECT 1) SELECT " + "CASE WHEN " * 900 + "1" + " THEN 1 END" * 900,
        "INSERT INTO t (a, b) VALUES " + ", ".join(["(1, 'x')"] * 9_000),
        "/*" * 40_000,
        "INSERT INTO t SELECT " + "CAST(" * 5_000 + "1" + " AS int)" * 5_000,
        "INSERT INTO t VALUES " + ", ".join(["(CAST(1 AS int))"] * 5_000),
        "SELECT " + "'a'\n" * 20_000,
        "SELECT '" + "''" * 40_000,
        "SELECT " + "* FROM tables, " * 6_000,
    ],
    ids=range(12),
)
def test_no_statement_takes_long(dialect: SystemName, query: str) -> None:
    began = time.process_time()
    effects(query, dialect)
    assert time.process_time() - began < 5


def test_what_is_too_long_may_do_anything() -> None:
    assert effects("SELECT " + "1 + " * LONGEST + "1", "sqlite") == Effects("other")
    assert effects("SELECT random() + " + "1 + " * LONGEST + "1", "sqlite") == CODES["osv"]


def test_sqlglot_is_imported_only_where_the_words_leave_something_open() -> None:
    program = (
        "import sys; from tvsnap.plugins.sql.statements import effects\n"
        "effects('SELECT lower(a) FROM t', 'sqlite'); before = 'sqlglot' in sys.modules\n"
        "effects('CREATE INDEX i ON t (a)', 'sqlite'); print(before, 'sqlglot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False True\n", "")
