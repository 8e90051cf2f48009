#!/usr/bin/env bash
# pyturso 0.8.3 (Turso, SQLite rewritten in Rust) beside sqlite3 of Python 3.11.7: one file in both, and the same statements
#
# Guess: the file is locked, or each sees what the other has committed; parameters are counted by both.
# Behaviour: each sees what it has read at first and its own rows; the row that sqlite3 commits in between is gone once Turso writes, with no error, and the check of
# integrity is content. Of the parameters, those that are missing are NULL, and 2**63 is a float, where
# sqlite3 raises.
. "$(dirname "$0")/common.sh"
packages pyturso==0.8.3
python -c 'import sqlite3; print("SQLite", sqlite3.sqlite_version)'

cat >both.py <<'PYTHON'
import sqlite3
import turso
one = turso.connect("runs.db")
one.execute("CREATE TABLE t (a)")
one.execute("INSERT INTO t VALUES ('by Turso')")
one.commit()
other = sqlite3.connect("runs.db")
print(other.execute("SELECT a FROM t").fetchall())
with other:
    other.execute("INSERT INTO t VALUES ('by sqlite3')")
print(one.execute("SELECT a FROM t").fetchall(), other.execute("SELECT a FROM t").fetchall())
one.execute("INSERT INTO t VALUES ('by Turso again')")
one.commit()
one.close()
other.close()
again = sqlite3.connect("runs.db")
print(again.execute("SELECT a FROM t").fetchall(), again.execute("PRAGMA integrity_check").fetchall())
for connect in (turso.connect, sqlite3.connect):
    for statement, parameters in (("SELECT :a, :b", {"a": 1}), ("SELECT ?, ?", (1,)), ("SELECT ?", (2**63,))):
        try:
            print(connect(":memory:").execute(statement, parameters).fetchall(), end=" ")
        except Exception as error:
            print(type(error).__name__, end=" ")
    print()
PYTHON
python both.py >out
seen "sqlite3 reads what Turso has written" "$(sed -n 1p out)" "[('by Turso',)]"
seen "after a row by sqlite3: as Turso reads, as sqlite3 reads" "$(sed -n 2p out)" "[('by Turso',)] [('by Turso',), ('by sqlite3',)]"
seen "after another one by Turso, and both closed" "$(sed -n 3p out)" "[('by Turso',), ('by Turso again',)] [('ok',)]"
seen "Turso: a missing name, a missing parameter, 2**63" "$(sed -n 4p out | xargs)" "[(1, None)] [(1, None)] [(9.223372036854776e+18,)]"
seen "sqlite3" "$(sed -n 5p out | xargs)" "ProgrammingError ProgrammingError OverflowError"
