#!/usr/bin/env bash
# apsw 3.54.1.0, SQLite's sessions: what a rollout changed in a database, recorded and applied to a copy of the first state
#
# Guess: a changeset has all changes of its database, or recording others is an error.
# Behaviour: rows of a table without a primary key are missing, as are those whose key is NULL, new tables and columns, and
# `user_version`. Where a column was added, changes of that table are not applied to the copy. Nothing of this raises.
. "$(dirname "$0")/common.sh"
packages apsw==3.54.1.0

cat >session.py <<'PYTHON'
import apsw
def database():
    made = apsw.Connection(":memory:")
    made.execute("""CREATE TABLE accounts (id INTEGER PRIMARY KEY, amount); CREATE TABLE log (line);
        CREATE TABLE names (name TEXT PRIMARY KEY); CREATE TABLE users (id INTEGER PRIMARY KEY, name);
        INSERT INTO accounts VALUES (1, 5); INSERT INTO users VALUES (1, 'a')""")
    return made
changed, copy = database(), database()
session = apsw.Session(changed, "main")
session.attach()
changed.execute("""UPDATE accounts SET amount = 7; INSERT INTO log VALUES ('paid'); INSERT INTO names VALUES (NULL), ('b');
    CREATE TABLE made (id INTEGER PRIMARY KEY); INSERT INTO made VALUES (1); PRAGMA user_version = 3;
    ALTER TABLE users ADD COLUMN age DEFAULT 0; UPDATE users SET name = 'z', age = 9""")
print(sorted({change.name for change in apsw.Changeset.iter(session.changeset())}))
conflicts = []
def conflict(reason, change):
    conflicts.append(change.name)
    return apsw.SQLITE_CHANGESET_OMIT
apsw.Changeset.apply(session.changeset(), copy, conflict=conflict)
for table in "accounts", "log", "names", "users":
    print(table, *(each.execute(f"SELECT * FROM {table}").fetchall() for each in (changed, copy)))
print(conflicts, copy.execute("SELECT count(*) FROM sqlite_master WHERE name = 'made'").fetchall(), copy.pragma("user_version"))
PYTHON
python session.py >out
seen "tables in the changeset" "$(sed -n 1p out)" "['accounts', 'made', 'names', 'users']"
seen "a table with a key, there and in the copy" "$(sed -n 2p out)" "accounts [(1, 7)] [(1, 7)]"
seen "one without a key" "$(sed -n 3p out)" "log [('paid',)] []"
seen "one with a key that is NULL" "$(sed -n 4p out)" "names [(None,), ('b',)] [('b',)]"
seen "one with a new column" "$(sed -n 5p out)" "users [(1, 'z', 9)] [(1, 'a')]"
seen "conflicts, the new table, user_version" "$(sed -n 6p out)" "[] [(0,)] 0"
