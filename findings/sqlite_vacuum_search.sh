#!/usr/bin/env bash
# SQLite 3.40.1 (of the system): VACUUM, for a small snapshot, of a database with a full-text index (FTS5, content in a table)
#
# Guess: VACUUM changes the file's size, not the result of any query.
# Behaviour: the rows of a table without an INTEGER PRIMARY KEY have new numbers, 1, 2, 3, while the index keeps the old
# ones: the search for one text returns another one, and that for the last text says that the database is malformed. The
# copy that VACUUM INTO makes keeps the numbers, and is right.
. "$(dirname "$0")/common.sh"
python3 -c 'import sqlite3, sys; print("Python", sys.version.split()[0], "SQLite", sqlite3.sqlite_version)'

cat >search.py <<'PYTHON'
import sqlite3
def search(connection):
    for word in ("beta", "gamma"):
        try:
            yield connection.execute("SELECT text FROM found WHERE found MATCH ?", (word,)).fetchall()[0][0]
        except sqlite3.DatabaseError as error:
            yield str(error)
def make(name, key):
    connection = sqlite3.connect(name)
    connection.executescript(f"CREATE TABLE notes ({key} text); CREATE VIRTUAL TABLE found USING fts5(text, content='notes')")
    for text in ("alpha", "beta", "gamma"):
        row = connection.execute("INSERT INTO notes (text) VALUES (?)", (text,)).lastrowid
        connection.execute("INSERT INTO found (rowid, text) VALUES (?, ?)", (row, text))
    connection.execute("INSERT INTO found (found, rowid, text) VALUES ('delete', 1, 'alpha')")
    connection.execute("DELETE FROM notes WHERE rowid = 1")
    connection.commit()
    return connection
connection = make("notes.db", "")
print(*search(connection), sep=", ")
connection.execute("VACUUM INTO 'copy.db'")
print(*search(sqlite3.connect("copy.db")), sep=", ")
connection.execute("VACUUM")
print(*search(connection), sep=", ")
connection = make("keyed.db", "id INTEGER PRIMARY KEY,")
connection.execute("VACUUM")
print(*search(connection), sep=", ")
PYTHON
python3 search.py >out
seen "beta and gamma before" "$(sed -n 1p out)" "beta, gamma"
seen "in the copy of VACUUM INTO" "$(sed -n 2p out)" "beta, gamma"
seen "after VACUUM" "$(sed -n 3p out)" "gamma, database disk image is malformed"
seen "with a key, after VACUUM" "$(sed -n 4p out)" "beta, gamma"
