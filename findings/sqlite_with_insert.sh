#!/usr/bin/env bash
# Python 3.11.7 (of the system) with SQLite 3.40.1: `rollback()` after an INSERT whose statement begins with WITH
#
# Guess: the driver opens a transaction before each statement that writes, so that the rollback takes every one of them back.
# Behaviour: it looks at the first word. A statement that begins with INSERT, UPDATE, DELETE or REPLACE opens a transaction;
# one that begins with WITH is written at once, outside of any, and stays after a rollback. Its `rowcount` is -1.
. "$(dirname "$0")/common.sh"
python3 -c 'import platform, sqlite3; print("Python", platform.python_version(), "SQLite", sqlite3.sqlite_version)'

cat >rolled_back.py <<'PYTHON'
import sqlite3
for write in (
    "INSERT INTO scores VALUES (2)",
    "WITH new(score) AS (VALUES (2)) INSERT INTO scores SELECT score FROM new",
    "WITH bad(score) AS (VALUES (1)) DELETE FROM scores WHERE score IN bad",
):
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE scores (score)")
    connection.execute("INSERT INTO scores VALUES (1)")
    connection.commit()
    rows = connection.execute(write).rowcount
    connection.rollback()
    print(rows, [score for (score,) in connection.execute("SELECT score FROM scores")])
PYTHON
python3 rolled_back.py >out
seen "INSERT: rowcount, and scores after the rollback" "$(sed -n 1p out)" "1 [1]"
seen "WITH and INSERT" "$(sed -n 2p out)" "-1 [1, 2]"
seen "WITH and DELETE" "$(sed -n 3p out)" "-1 []"
