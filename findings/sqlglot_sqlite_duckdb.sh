#!/usr/bin/env bash
# sqlglot 30.30.0: a query of SQLite that is translated for DuckDB 1.4.1, on equal tables
#
# Guess: the same rows, or an error for what cannot be translated; dialects that sqlglot knows differ in spelling only.
# Behaviour: other rows without a word: integers are divided as decimals, LIKE minds the case, a cast to an integer rounds,
# a text that looks like a number equals it, and of `char(65, 66)` the second argument is dropped. A reward that compares
# rows holds the right query for wrong.
. "$(dirname "$0")/common.sh"
packages sqlglot==30.30.0 duckdb==1.4.1

cat >translate.py <<'PYTHON'
import sqlite3
import duckdb
import sqlglot
setup = "CREATE TABLE t (n INTEGER, s TEXT); INSERT INTO t VALUES (7, 'Ada')"
one = sqlite3.connect(":memory:")
one.executescript(setup)
other = duckdb.connect()
other.execute(setup)
for query in (
    "SELECT n / 2 FROM t", "SELECT count(*) FROM t WHERE s LIKE 'a%'", "SELECT CAST(2.7 AS INTEGER)", "SELECT '1' = 1",
    "SELECT char(65, 66)", "SELECT substr(s, 0, 3) FROM t",
):
    translated = sqlglot.transpile(query, read="sqlite", write="duckdb")[0]
    rows = [database.execute(text).fetchall()[0][0] for database, text in ((one, query), (other, translated))]
    print(f"{query}: {rows[0]} | {rows[1]}")
PYTHON
python translate.py >out
cat >expected <<'LINES'
SELECT n / 2 FROM t: 3 | 3.5
SELECT count(*) FROM t WHERE s LIKE 'a%': 1 | 0
SELECT CAST(2.7 AS INTEGER): 2 | 3
SELECT '1' = 1: 0 | True
SELECT char(65, 66): AB | A
LINES
seen "SQLite | translated, in DuckDB" "$(sed 6d out)" "$(cat expected)"
seen "the last one" "$(sed -n 6p out)" "SELECT substr(s, 0, 3) FROM t: Ad | Ad"
