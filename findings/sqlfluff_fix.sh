#!/usr/bin/env bash
# sqlfluff 4.5.0 with SQLite (of Python 3.11.7): the queries of an agent, before and after `sqlfluff.fix`
#
# Guess: another layout, and the same rows; what may change them is only reported.
# Behaviour: columns change their order, as what is computed goes behind plain ones, also behind DISTINCT; a join by USING becomes one by
# ON, so that `SELECT *` has the column twice, without the value for rows of the right table alone; `= NULL`, which is true for no
# row, becomes `is NULL`, and `<> NULL` becomes `is not NULL`.
. "$(dirname "$0")/common.sh"
packages sqlfluff==4.5.0

cat >fix.py <<'PYTHON'
import sqlite3
import sqlfluff
database = sqlite3.connect(":memory:")
database.executescript("""
    CREATE TABLE rewards (task, reward, seconds); INSERT INTO rewards VALUES ('a', 1, 5), ('b', NULL, 7);
    CREATE TABLE tasks (task, kind); INSERT INTO tasks VALUES ('a', 'math'), ('c', 'code');
""")
for query in (
    "select reward + 1, task from rewards where task = 'a'", "select distinct(reward), task from rewards where task = 'a'",
    "select * from rewards full join tasks using (task)", "select task from rewards where reward = null",
    "select task from rewards where reward <> null",
):
    print(*(database.execute(text).fetchall() for text in (query, sqlfluff.fix(query, dialect="sqlite"))), sep=" | ")
PYTHON
python fix.py >out
seen "a column that is computed, and one that is not" "$(sed -n 1p out)" "[(2, 'a')] | [('a', 2)]"
seen "distinct(reward), task" "$(sed -n 2p out)" "[(1, 'a')] | [('a', 1)]"
seen "full join using (task)" "$(sed -n 3p out)" \
    "[('a', 1, 5, 'math'), ('b', None, 7, None), ('c', None, None, 'code')] | [('a', 1, 5, 'a', 'math'), ('b', None, 7, None, None), (None, None, None, 'c', 'code')]"
seen "reward = null" "$(sed -n 4p out)" "[] | [('b',)]"
seen "reward <> null" "$(sed -n 5p out)" "[] | [('a',)]"
