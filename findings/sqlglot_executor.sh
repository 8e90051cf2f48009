#!/usr/bin/env bash
# sqlglot 30.30.0: queries of SQLite by its executor, over rows in Python, beside SQLite 3.40.1
#
# Guess: the rows of SQLite, or an error for what it cannot do.
# Behaviour: of a UNION ALL, EXCEPT or INTERSECT of two queries over one table, one of the two, now the first and now the second, stands for both, with no
# error: UNION ALL has its rows twice, EXCEPT none, and INTERSECT all of them; with an alias for one table they are right. -7 % 3 is 2, `round` of 2.5
# is 2, `substr` from 0 is empty.
. "$(dirname "$0")/common.sh"
packages sqlglot==30.30.0

cat >queries.py <<'PYTHON'
import sqlite3
from sqlglot.executor import execute
runs = [{"id": 1, "reward": 0.5}, {"id": 2, "reward": 1}, {"id": 3, "reward": 1}]
database = sqlite3.connect(":memory:")
database.execute("CREATE TABLE runs (id INT, reward FLOAT)")
database.executemany("INSERT INTO runs VALUES (:id, :reward)", runs)
def rows(query):
    schema = {"runs": {"id": "INT", "reward": "FLOAT"}}
    by_executor = sorted(map(tuple, execute(query, schema=schema, tables={"runs": runs}, dialect="sqlite").rows))
    return by_executor, sorted(database.execute(query).fetchall())
one, other = "SELECT id FROM runs WHERE id < 2", "SELECT id FROM runs WHERE id > 2"
both, right = rows(f"{one} UNION ALL {other}")
print(both in ([(1,), (1,)], [(3,), (3,)]), right)
print(*rows(f"{one} UNION ALL {other.replace('runs', 'runs AS others')}"))
print(*rows("SELECT id FROM runs EXCEPT SELECT id FROM runs WHERE reward < 1"))
both, right = rows("SELECT id FROM runs WHERE reward = 1 INTERSECT SELECT id FROM runs WHERE id < 3")
print(both in ([(1,), (2,)], [(2,), (3,)]), right)
print(*rows("SELECT -7 % 3, round(2.5), substr('abc', 0, 2)"))
PYTHON
python queries.py >out
line=0
rows() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
rows "UNION ALL of id < 2 and id > 2: one of them twice; SQLite" "True [(1,), (3,)]"
rows "with an alias: the executor, SQLite" "[(1,), (3,)] [(1,), (3,)]"
rows "all EXCEPT those below 1" "[] [(2,), (3,)]"
rows "INTERSECT of 2, 3 and 1, 2: one of them; SQLite" "True [(2,)]"
rows "-7 % 3, round(2.5), substr('abc', 0, 2)" "[(2, 2, '')] [(-1, 3.0, 'a')]"
