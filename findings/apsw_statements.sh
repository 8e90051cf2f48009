#!/usr/bin/env bash
# apsw 3.54.1.0: several statements in one `execute`, and `executemany` with a row that fails
#
# Guess: `execute` runs all statements, as it takes them all; what it cannot run is an error at once. A row that fails takes back its call, or leaves a transaction
# open, as with sqlite3.
# Behaviour: it runs to the first row of a result, and the rest while rows are fetched: what stands behind a SELECT, or behind an INSERT with RETURNING, never
# runs if nobody fetches, and a wrong statement there is no error. Fetching one row runs no more of them. The rows before the one that fails
# stay, and are committed. A PRAGMA that answers ends the script in the same way.
. "$(dirname "$0")/common.sh"
packages apsw==3.54.1.0

cat >script.py <<'PYTHON'
import apsw
def count(script, fetch=lambda cursor: None):
    database = apsw.Connection(":memory:")
    database.execute("CREATE TABLE t (a PRIMARY KEY)")
    try:
        fetch(database.execute(script))
        said = "no error"
    except apsw.Error as error:
        said = type(error).__name__
    print(said, database.execute("SELECT count(*) FROM t").get)
count("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)")
count("INSERT INTO t VALUES (1); SELECT count(*) FROM t; INSERT INTO t VALUES (2)")
count("INSERT INTO t VALUES (1) RETURNING a; INSERT INTO t VALUES (2)")
count("PRAGMA journal_mode = MEMORY; INSERT INTO t VALUES (1)")
count("INSERT INTO t VALUES (1); SELECT a FROM t; INSERT INTO nothing VALUES (2)")
count("INSERT INTO t VALUES (1); SELECT a FROM t; INSERT INTO t VALUES (2)", lambda cursor: cursor.fetchone())
count("INSERT INTO t VALUES (1); SELECT a FROM t; INSERT INTO t VALUES (2)", lambda cursor: cursor.fetchall())
database = apsw.Connection(":memory:")
database.execute("CREATE TABLE t (a PRIMARY KEY)")
try:
    database.executemany("INSERT INTO t VALUES (?)", [(1,), (2,), (1,), (4,)])
except apsw.ConstraintError:
    print(database.execute("SELECT count(*) FROM t").get, database.in_transaction)
PYTHON
python script.py >out
line=0
rows() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
rows "two INSERTs" "no error 2"
rows "SELECT, INSERT" "no error 1"
rows "INSERT with RETURNING, INSERT" "no error 1"
rows "PRAGMA journal_mode, INSERT" "no error 0"
rows "SELECT, a wrong INSERT" "no error 1"
rows "SELECT, INSERT, and one row is fetched" "no error 1"
rows "SELECT, INSERT, and all rows are fetched" "no error 2"
rows "executemany whose third row fails: rows, whether a transaction is open" "2 False"
