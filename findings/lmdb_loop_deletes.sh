#!/usr/bin/env bash
# lmdb 3.0.0 for Python: a cache from which a loop removes what is old, and its named databases
#
# Guess: a loop with `cursor.delete()` visits each key; the main database holds what was put there; the last value of a key counts.
# Behaviour: the deletion moves the cursor, and the loop moves it again, so that each second key stays. A named database is a key of
# the main one, and is counted; with `dupsort`, a second value is added, the least of all is read, and the same value twice is
# one, though `put` returns True.
. "$(dirname "$0")/common.sh"
packages lmdb==3.0.0

cat >loop.py <<'PYTHON'
import lmdb
environment = lmdb.open("store", max_dbs=2)
with environment.begin(write=True) as transaction:
    for number in range(6):
        transaction.put(b"old-%d" % number, b"")
with environment.begin(write=True) as transaction:
    cursor = transaction.cursor()
    for key, _ in cursor.iternext():
        cursor.delete()
with environment.begin() as transaction:
    print([key.decode() for key, _ in transaction.cursor()])
values = environment.open_db(b"values", dupsort=True)
with environment.begin(write=True) as transaction:
    print([transaction.put(b"reward", value, db=values) for value in (b"0.5", b"0.1", b"0.5")], transaction.get(b"reward", db=values))
    print(transaction.stat(values)["entries"], transaction.stat()["entries"], list(transaction.cursor().iternext(values=False))[-1])
PYTHON
python loop.py >out
seen "six keys, each deleted in a loop" "$(sed -n 1p out)" "['old-1', 'old-3', 'old-5']"
seen "three values of a key, and what is read" "$(sed -n 2p out)" "[True, True, True] b'0.1'"
seen "entries of this database and of the main one, whose last key is" "$(sed -n 3p out)" "2 4 b'values'"
