#!/usr/bin/env bash
# DuckDB 1.4.1 (Python): the files of two databases that the same statements made
#
# Guess: equal, for neither time nor chance is in the statements; in SQLite they are equal.
# Behaviour: the files differ each time, so bytes do not tell whether two databases have the same contents.
. "$(dirname "$0")/common.sh"
packages duckdb==1.4.1

cat >two.py <<'END'
import duckdb, hashlib, sqlite3
def digest(module, name):
    connection = module.connect(name)
    connection.execute("CREATE TABLE t AS SELECT 1 AS x")
    connection.close()
    return hashlib.sha256(open(name, "rb").read()).hexdigest()
for module in (duckdb, sqlite3):
    print(module.__name__, len({digest(module, f"{module.__name__}{at}") for at in range(3)}))
END
python two.py >out
seen "different files of three, SQLite" "$(sed -n 's/^sqlite3 //p' out)" 1
seen "different files of three, DuckDB" "$(sed -n 's/^duckdb //p' out)" 3
