#!/usr/bin/env bash
# Python 3.11.7, SQLite 3.40.1 (of the system): `Connection.serialize` of a database with a write-ahead log, as a snapshot
#
# Guess: `deserialize` gives the database back, as `Connection.backup` does.
# Behaviour: the bytes are complete, but their header says that there is a log, which a database in memory cannot have: each
# query of the copy fails with "unable to open database file". Written to a file they are a database. Without a log, or with
# the bytes 18 and 19 set to 1, the copy in memory works.
. "$(dirname "$0")/common.sh"
python3 -c 'import sqlite3, sys; print("Python", sys.version.split()[0], "SQLite", sqlite3.sqlite_version)'

cat >snapshot.py <<'PYTHON'
import sqlite3
def query(connection):
    try:
        return connection.execute("SELECT count(*) FROM notes").fetchone()[0]
    except sqlite3.OperationalError as error:
        return error
def memory(data):
    connection = sqlite3.connect(":memory:")
    connection.deserialize(data)
    return connection
for mode in ("delete", "wal"):
    source = sqlite3.connect(f"{mode}.db")
    source.execute(f"PRAGMA journal_mode = {mode}")
    source.execute("CREATE TABLE notes (text)")
    source.execute("INSERT INTO notes VALUES ('one')")
    source.commit()
    print(query(memory(source.serialize())))
data = bytearray(source.serialize())
with open("copy.db", "wb") as file:
    file.write(data)
print(query(sqlite3.connect("copy.db")))
data[18:20] = b"\1\1"
print(query(memory(bytes(data))))
copy = sqlite3.connect(":memory:")
source.backup(copy)
print(query(copy))
PYTHON
python3 snapshot.py >out
seen "rows without a log" "$(sed -n 1p out)" 1
seen "rows with a log" "$(sed -n 2p out)" "unable to open database file"
seen "its bytes as a file" "$(sed -n 3p out)" 1
seen "with another header" "$(sed -n 4p out)" 1
seen "by backup" "$(sed -n 5p out)" 1
