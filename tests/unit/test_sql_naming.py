"""What statements name, and what a database system's definitions make of it."""

from __future__ import annotations

import pytest

from tvsnap.plugins.sql.inside.lexemes import SystemName
from tvsnap.plugins.sql.inside.mariadb.definitions import meaning
from tvsnap.plugins.sql.inside.reach import Definitions, Reach
from tvsnap.plugins.sql.naming import MOST_NAMES, words


@pytest.mark.parametrize(
    ("dialect", "query", "names"),
    [
        ("postgres", 'SELECT a FROM s."The ""Table" WHERE b = \'hidden\'', {"s", 'the "table', "a", "b"}),
        ("postgres", "EXECUTE p('put into h')", {"p", "h"}),
        ("postgres", "DO $$ BEGIN INSERT INTO H VALUES (1); END $$", {"h"}),
        ("mariadb", "INSERT INTO `Odd``Name` (`N`) VALUES (1)", {"odd`name", "n"}),
        ("sqlite", "UPDATE [t x] SET a = 1", {"t x", "a"}),
    ],
)
def test_names(dialect: SystemName, query: str, names: set[str]) -> None:
    found = words(query, dialect).names
    assert found is not None
    assert names <= found
    assert "hidden" not in found


@pytest.mark.parametrize(
    ("dialect", "query"),
    [
        ("postgres", 'SELECT * FROM U&"\\0072"'),
        ("postgres", "SELECT 'no end"),
        ("mariadb", "/*!50000 INSERT INTO t VALUES (1) */"),
        ("sqlite", "SELECT " + ", ".join(f"c{number}" for number in range(MOST_NAMES + 1))),
    ],
)
def test_what_cannot_be_named_may_reach_anything(dialect: SystemName, query: str) -> None:
    assert words(query, dialect).names is None
    assert Reach(Definitions()).is_doubtful(words(query, dialect), "read")


PLAIN = """
1 INSERT INTO t VALUES (1, 'a')
1 UPDATE t SET a = upper(b) WHERE c IN (SELECT d FROM u)
1 DELETE FROM t
1 TRUNCATE t
1 CREATE TABLE t (a integer PRIMARY KEY, b timestamp DEFAULT now())
1 DROP TABLE t
1 INSERT INTO t VALUES (1); UPDATE t SET a = 2
1 COMMIT
1 ROLLBACK TO SAVEPOINT s
1 SET search_path = s
0 SELECT 1
0 BEGIN
0 SET ROLE someone
0 INSERT INTO t VALUES (now())
0 INSERT INTO t VALUES (f(1))
0 INSERT INTO t VALUES (1); SELECT now()
0 CALL f()
0 CREATE EXTENSION pgcrypto
0 CREATE ROLE r PASSWORD 'x'
0 ALTER TABLE t ADD COLUMN made timestamp DEFAULT now()
0 ANALYZE t
0 INSERT INTO t SELECT * FROM u TABLESAMPLE system (10)
""".strip().splitlines()


@pytest.mark.parametrize("line", PLAIN)
def test_what_is_plain(line: str) -> None:
    assert words(line[2:], "postgres").plain == (line[0] == "1")


@pytest.mark.parametrize(
    "query", ["EXECUTE p", "CALL f()", "DO $$ $$", "FETCH c", "VACUUM", "CREATE EXTENSION e", "??"]
)
def test_what_executes_more_than_it_says(query: str) -> None:
    assert words(query, "postgres").executes


@pytest.mark.parametrize(
    "query", ["BEGIN", "COMMIT", "SET x = 1", "SELECT * FROM t FOR UPDATE", "DECLARE c CURSOR FOR TABLE t"]
)
def test_what_executes_what_it_says(query: str) -> None:
    assert not words(query, "postgres").executes


def test_a_definition_counts_until_the_system_tells_of_it() -> None:
    reach = Reach(Definitions())
    asked, filled = words("SELECT * FROM v", "postgres"), words("INSERT INTO s.h (n) VALUES (1)", "postgres")
    assert not reach.is_doubtful(asked, "read")
    for query in ("CREATE VIEW v AS SELECT now()", "ALTER TABLE ONLY s.h ALTER k SET DEFAULT random()"):
        reach.note(words(query, "postgres"), "write")
    assert reach.is_doubtful(asked, "read")
    assert reach.is_doubtful(filled, "write")
    assert not reach.is_doubtful(words("SELECT * FROM other", "postgres"), "read")
    reach.learn(Definitions(complete=False))
    assert reach.is_doubtful(asked, "read")
    reach.learn(Definitions())
    assert not reach.is_doubtful(asked, "read")


@pytest.mark.parametrize(
    "query",
    ["SELECT lower(5)", 'SELECT s."Lower" (5)', "INSERT INTO a SELECT lower(5)", "SELECT pg_catalog.lower('X')"],
)
def test_a_function_of_a_built_in_name_may_do_anything(query: str) -> None:
    reach = Reach(Definitions(impure=frozenset({"lower"})))
    asked = words(query, "postgres")
    assert asked.called == {"lower"}
    assert reach.is_doubtful(asked, "read")
    assert reach.may_change(asked)
    other = words("SELECT lower FROM t WHERE upper(a) = 'X'", "postgres")
    assert not reach.is_doubtful(other, "read")
    assert not reach.may_change(other)


@pytest.mark.parametrize(
    "query",
    [
        "CREATE FUNCTION lower(integer) RETURNS timestamptz LANGUAGE sql AS 'select clock_timestamp()'",
        "CREATE OR REPLACE FUNCTION s.lower(integer) RETURNS integer LANGUAGE sql AS 'select 1'",
        "CREATE AGGREGATE lower(integer) (sfunc = int4pl, stype = integer)",
        "CREATE FOREIGN TABLE lower (a text) SERVER s",
    ],
)
def test_a_name_that_was_just_defined_counts(query: str) -> None:
    reach = Reach(Definitions())
    reach.note(words(query, "postgres"), "write")
    assert reach.is_doubtful(words("SELECT a, lower(5) FROM t", "postgres"), "read")
    assert not reach.is_doubtful(words("SELECT a FROM t", "postgres"), "read")
    reach.learn(Definitions())
    assert not reach.is_doubtful(words("SELECT lower(5)", "postgres"), "read")


def test_nothing_is_sure_where_definitions_cannot_be_told() -> None:
    reach = Reach(None)
    assert reach.is_doubtful(words("SELECT 1", "postgres"), "read")
    assert reach.may_change(words("SELECT 1", "postgres"))
    assert reach.seeds


def test_what_mariadb_defines() -> None:
    known = meaning(
        [
            ("view", "clock", "select current_timestamp() AS `c`"),
            ("view", "over", "select `shop`.`clock`.`c` AS `c` from `shop`.`clock`"),
            ("view", "calm", "select `shop`.`items`.`id` AS `id` from `shop`.`items`"),
            ("view", "files", "select `tables`.`update_time` from `information_schema`.`tables`"),
            ("write", "stamped", "uuid()"),
            ("write", "items", "trigger insert into stamped (n) values (new.id)"),
            ("write", "plain", "'x'"),
            ("column", "virtual", "sysdate(6)"),
            ("routine", "draw", "return rand()"),
            ("routine", "calls", "return draw() + 1"),
            ("routine", "twice", "return 2 * n"),
            ("routine", "runs", "execute immediate q"),
            ("timed", "hours", ""),
            ("view", "late", "select `shop`.`hours`.`h` AS `h` from `shop`.`hours`"),
            ("view", "later", "select `late`.`h` AS `h` from `shop`.`late`"),
            ("view", "noon", "select maketime(12,0,0) AS `h`"),
            ("write", "logged", "trigger insert into hours values ({t '10:00'})"),
        ]
    )
    assert known.reads >= {"clock", "over", "files", "virtual", "draw", "calls", "runs"}
    assert known.reads.isdisjoint({"calm", "stamped", "items", "plain", "twice"})
    assert known.writes >= {"stamped", "items"}
    assert "plain" not in known.writes
    assert known.pure == {"twice"}
    assert known.timed == {"hours", "late", "later", "noon", "logged"}
    assert not known.complete


def test_a_definition_that_notes_down_a_time_hides_none() -> None:
    reach = Reach(Definitions(complete=False, version="1"))
    for query in (
        "CREATE DEFINER=`a`@`b` PROCEDURE p() SELECT 1",
        "CREATE USER u",
        "CREATE TABLE t (a TIMESTAMP NULL)",
    ):
        reach.note(words(query, "mariadb"), "write")
    reach.learn(Definitions(complete=False, version="2"))
    assert not reach.is_doubtful(words("INSERT INTO t VALUES (1)", "mariadb"), "write")


@pytest.mark.parametrize(
    "query",
    [
        "CREATE CAST (text AS timestamptz) WITH INOUT AS ASSIGNMENT",
        "CREATE OPERATOR @@@ (leftarg = integer, rightarg = integer, function = f)",
        "CREATE OPERATOR CLASS o FOR TYPE integer USING btree AS FUNCTION 1 f(integer, integer)",
        "CREATE TYPE u (input = f, output = g)",
        "CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION f()",
        "CREATE EXTENSION citext",
    ],
)
def test_what_nobody_names_may_be_met_anywhere_until_the_system_tells(query: str) -> None:
    reach = Reach(Definitions())
    added = words("INSERT INTO h SELECT a FROM t", "postgres")
    reach.note(words(query, "postgres"), "other")
    assert reach.is_doubtful(added, "write")
    reach.learn(Definitions())
    assert not reach.is_doubtful(added, "write")


def test_a_default_by_conversion_counts_in_its_transaction() -> None:
    reach = Reach(Definitions())
    reach.note(words("CREATE TABLE h (d date DEFAULT ('no' || 'w')::date)", "postgres"), "write")
    assert reach.is_doubtful(words("INSERT INTO h VALUES (DEFAULT)", "postgres"), "write")
    assert not reach.is_doubtful(words("INSERT INTO t VALUES (1)", "postgres"), "write")


def test_to_define_a_function_is_not_to_call_it() -> None:
    reach = Reach(Definitions(impure=frozenset({"f"})))
    for query in ("CREATE FUNCTION f(integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'", "DROP FUNCTION f(integer)"):
        assert not reach.is_doubtful(words(query, "postgres"), "write")
    assert reach.is_doubtful(words("CREATE TABLE t AS SELECT f(1)", "postgres"), "write")


def test_what_holds_times_of_day_is_doubtful_where_it_is_written() -> None:
    reach = Reach(Definitions(timed=frozenset({"hours"}), complete=False))
    for query in (
        "CREATE TEMPORARY TABLE a (h TIME)",
        "CREATE TEMPORARY TABLE b (at TIMESTAMP NOT NULL)",
        "CREATE TEMPORARY TABLE c AS SELECT * FROM hours",
        "CREATE TEMPORARY TABLE d LIKE c",
        "CREATE TEMPORARY TABLE e (n INT)",
        "ALTER TABLE e ADD COLUMN h TIME",
    ):
        reach.note(words(query, "mariadb"), "write")
    for name in ("hours", "a", "b", "c", "d", "e"):
        assert reach.is_doubtful(words(f"INSERT INTO x SELECT * FROM {name}", "mariadb"), "write"), name
        assert not reach.is_doubtful(words(f"SELECT * FROM {name}", "mariadb"), "read"), name
    assert not reach.is_doubtful(words("INSERT INTO x SELECT * FROM y", "mariadb"), "write")


@pytest.mark.parametrize("query", ["EXECUTE IMMEDIATE CONCAT('CREATE ', 'TEMPORARY')", "EXECUTE p", "CALL p()"])
def test_after_a_definition_that_nobody_saw_no_writing_is_sure(query: str) -> None:
    reach = Reach(Definitions(complete=False, version="1"))
    added, read = words("INSERT INTO t VALUES (1)", "mariadb"), words("SELECT * FROM t", "mariadb")
    reach.note(words(query, "mariadb"), "other")
    reach.learn(Definitions(complete=False, version="1"))
    assert not reach.is_doubtful(added, "write")
    reach.note(words(query, "mariadb"), "other")
    reach.learn(Definitions(complete=False, version="2"))
    reach.learn(Definitions(complete=False, version="2"))
    assert reach.is_doubtful(added, "write")
    assert not reach.is_doubtful(read, "read")
