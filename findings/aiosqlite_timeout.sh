#!/usr/bin/env bash
# aiosqlite 0.22.1: a statement that `asyncio.wait_for` gives up, as a tool with a time limit does
#
# Guess: it is interrupted, as a cancelled coroutine is; what it would have written is not there.
# Behaviour: it runs on in the connection's thread. The caller has its TimeoutError; the next statement waits until the first
# has ended, and sees what it wrote, and a commit of the next one keeps both.
. "$(dirname "$0")/common.sh"
packages aiosqlite==0.22.1
python -c 'import sqlite3; print("SQLite", sqlite3.sqlite_version)'

cat >limit.py <<'PYTHON'
import asyncio, aiosqlite, sqlite3
COUNT = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000000) SELECT count(*) FROM n"
async def main():
    async with aiosqlite.connect("notes.db") as connection:
        await connection.execute("CREATE TABLE notes (text)")
        await connection.commit()
        try:
            await asyncio.wait_for(connection.execute(f"INSERT INTO notes {COUNT}"), 0.2)
            print("in time")
        except asyncio.TimeoutError:
            print("given up")
        await connection.execute("INSERT INTO notes VALUES ('next')")
        await connection.commit()
    print(sqlite3.connect("notes.db").execute("SELECT text FROM notes").fetchall())
asyncio.run(main())
PYTHON
python limit.py >out
seen "the first statement" "$(sed -n 1p out)" "given up"
seen "what is in the database" "$(sed -n 2p out)" "[(10000000,), ('next',)]"
