#!/usr/bin/env bash
# sqlite-utils 4.2.1: a column of a task's table is renamed by `transform`
#
# Guess: all else of the table stays, or it is an error, as it is for an index with a condition.
# Behaviour: the table is made anew from a part of its definition. Its triggers and computed columns are gone, a column that compares
# without case compares with case, and a default that is an expression is its text. Checks, keys and indexes stay.
. "$(dirname "$0")/common.sh"
packages sqlite-utils==4.2.1

cat >transform.py <<'PYTHON'
import sqlite_utils
database = sqlite_utils.Database(memory=True)
database.execute("CREATE TABLE log (text)")
database.execute("""CREATE TABLE accounts (id INTEGER PRIMARY KEY, name TEXT COLLATE NOCASE, amount INTEGER CHECK (amount > 0),
    cents AS (amount * 100), made DEFAULT (1 + 1))""")
database.execute("CREATE TRIGGER logged AFTER INSERT ON accounts BEGIN INSERT INTO log VALUES (new.id); END")
database.execute("CREATE INDEX by_name ON accounts (name DESC)")
def state(column):
    database.execute(f"INSERT INTO accounts ({column}) VALUES ('Ann')")
    one = database.execute(f"SELECT typeof(made), made FROM accounts WHERE {column} = 'Ann' ORDER BY id DESC").fetchone()
    print(database["log"].count, database.execute(f"SELECT count(*) > 0 FROM accounts WHERE {column} = 'ann'").fetchone()[0], *one)
    columns = [row[1] for row in database.execute("PRAGMA table_xinfo(accounts)")]
    print(*columns, len([index for index in database["accounts"].indexes if index.name == "by_name"]))
state("name")
database["accounts"].transform(rename={"name": "owner"})
state("owner")
PYTHON
python transform.py >out
seen "before: rows of the log, is Ann found as ann, the default" "$(sed -n 1p out)" "1 1 integer 2"
seen "columns, and the index" "$(sed -n 2p out)" "id name amount cents made 1"
seen "after one more row: rows of the log, is Ann found as ann, the default" "$(sed -n 3p out)" "1 0 text 1 + 1"
seen "columns, and the index" "$(sed -n 4p out)" "id owner amount made 1"
