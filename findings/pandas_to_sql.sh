#!/usr/bin/env bash
# pandas 3.1.1 and Python's sqlite3: `to_sql` and `read_sql` on a connection that a task uses
#
# Guess: they write within the caller's transaction and leave tables as they are; what is read is what is stored.
# Behaviour: `to_sql` commits what the caller had begun, so that a rollback takes nothing back; `if_exists="replace"` drops the
# key, the constraints and indices with the rows. By `read_sql`, an INSERT is made and
# stays open; of columns of one name the last is left; with a NULL among them, integers beyond 2**53 are others.
. "$(dirname "$0")/common.sh"
packages pandas==3.1.1

cat >write.py <<'PYTHON'
import sqlite3
import warnings
import pandas
warnings.simplefilter("ignore")
database = sqlite3.connect(":memory:")
database.execute("CREATE TABLE task (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)")
database.execute("INSERT INTO task VALUES (1, 'given up')")
pandas.DataFrame({"reward": [0.5]}).to_sql("rewards", database, index=False)
database.rollback()
print(database.execute("SELECT name FROM task").fetchall())
pandas.DataFrame({"id": [1, 1], "name": ["a", "a"]}).to_sql("task", database, index=False, if_exists="replace")
print(" ".join(database.execute("SELECT sql FROM sqlite_master WHERE name = 'task'").fetchone()[0].split()))
print(pandas.read_sql("INSERT INTO rewards VALUES (1) RETURNING reward", database)["reward"][0], database.in_transaction)
print(pandas.read_sql("SELECT 1 AS n, 2 AS n", database).to_dict("records"))
print(int(pandas.read_sql("SELECT 9007199254740993 AS n UNION ALL SELECT NULL", database)["n"][0]))
PYTHON
python write.py >out
seen "an INSERT, then to_sql for another table, then a rollback" "$(sed -n 1p out)" "[('given up',)]"
seen "the table after replace" "$(sed -n 2p out)" 'CREATE TABLE "task" ( "id" INTEGER, "name" TEXT )'
seen "an INSERT by read_sql, and whether it is open" "$(sed -n 3p out)" "1.0 True"
seen "1 AS n, 2 AS n" "$(sed -n 4p out)" "[{'n': 2}]"
seen "9007199254740993 above NULL" "$(sed -n 5p out)" "9007199254740992"
