#!/usr/bin/env bash
# NumPy 2.4.6 with sqlite3 of Python 3.11.7: steps, rewards and flags of arrays as parameters of an INSERT
#
# Guess: they are stored as numbers, as `np.float64` is; or refused, as types that SQLite does not know.
# Behaviour: `np.int64`, `np.int32`, `np.float32` and `np.bool_` are stored as blobs of their bytes, in columns of INTEGER and
# REAL, too. Nothing is said: WHERE step = 5 finds no row, and the sum and the mean are 0.
. "$(dirname "$0")/common.sh"
packages numpy==2.4.6

cat >insert.py <<'PYTHON'
import sqlite3
import numpy as np
connection = sqlite3.connect(":memory:")
connection.execute("CREATE TABLE rollouts (step INTEGER, reward REAL)")
for step, reward in zip(np.array([5, 6]), np.array([0.5, 1.0], dtype=np.float32)):
    connection.execute("INSERT INTO rollouts VALUES (?, ?)", (step, reward))
print(connection.execute("SELECT typeof(step), typeof(reward) FROM rollouts").fetchall())
print(connection.execute("SELECT count(*) FROM rollouts WHERE step = 5").fetchall())
print(connection.execute("SELECT sum(step), avg(reward) FROM rollouts").fetchall())
connection.execute("DELETE FROM rollouts")
connection.execute("INSERT INTO rollouts VALUES (?, ?)", (np.bool_(True), np.float64(0.5)))
print(connection.execute("SELECT typeof(step), typeof(reward) FROM rollouts").fetchall())
PYTHON
python insert.py >out
seen "types of np.int64 and np.float32" "$(sed -n 1p out)" "[('blob', 'blob'), ('blob', 'blob')]"
seen "rows of step 5" "$(sed -n 2p out)" "[(0,)]"
seen "sum of 5 and 6, mean of 0.5 and 1" "$(sed -n 3p out)" "[(0.0, 0.0)]"
seen "types of np.bool_ and np.float64" "$(sed -n 4p out)" "[('blob', 'real')]"
