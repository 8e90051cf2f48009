#!/usr/bin/env bash
# SQLite 3.40.1 (of the system, by Python's `sqlite3`): a copy of a database with its log, and one SELECT
#
# Guess: a program that only reads leaves the files as they are.
# Behaviour: the first connection that is closed moves the log's contents into the database and removes the log: a
# SELECT has rewritten the file, and a digest of it has changed. With mode=ro it stays, but two files are left beside it.
. "$(dirname "$0")/common.sh"

cat >read.py <<'END'
import hashlib, os, shutil, sqlite3
print("SQLite", sqlite3.sqlite_version)
writer = sqlite3.connect("live.db")
writer.execute("PRAGMA journal_mode = wal")
writer.execute("CREATE TABLE t (x)")
writer.execute("INSERT INTO t VALUES (1)")
writer.commit()
def digest(name):
    return hashlib.sha256(open(name, "rb").read()).hexdigest()
for mode in ("rw", "ro"):
    os.mkdir(mode)
    for name in ("live.db", "live.db-wal"):
        shutil.copy(name, mode)
    before = digest(f"{mode}/live.db")
    reader = sqlite3.connect(f"file:{mode}/live.db?mode={mode}", uri=True)
    assert reader.execute("SELECT x FROM t").fetchall() == [(1,)]
    reader.close()
    kept = "kept" if digest(f"{mode}/live.db") == before else "rewritten"
    print(mode, kept, *sorted(os.listdir(mode)))
END
python3 read.py | tee out
seen "a usual connection" "$(sed -n 's/^rw //p' out)" "rewritten live.db"
seen "mode=ro" "$(sed -n 's/^ro //p' out)" "kept live.db live.db-shm live.db-wal"
