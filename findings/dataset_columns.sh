#!/usr/bin/env bash
# dataset 2.0.0 with SQLite: rows as dicts in a table that makes its columns itself
#
# Guess: a misspelt column in a condition or a change is an error, or finds all rows; a transaction that is taken back leaves nothing; values come back.
# Behaviour: a misspelt column in a condition finds nothing, and so does an unknown operator; in `update` it becomes a column, and the old value stays. A transaction that is taken back
# leaves its columns. The first value decides on the type: 7 is the text "7" in a column of texts, the text "0.5" a number in one of whole
# numbers. `upsert` with a key that no row has is True for a change, and a number for a new row.
. "$(dirname "$0")/common.sh"
packages dataset==2.0.0

cat >rows.py <<'PYTHON'
import dataset
database = dataset.connect("sqlite:///runs.db")
table = database["runs"]
table.insert({"task": "a", "reward": 1})
print(table.count(tsk="a"), table.count(reward={"above": 0}), table.delete(tsk="a"), table.update({"reward": 5}, ["tsk"]))
print(table.update({"task": "a", "rward": 7}, ["task"]), dict(table.find_one(task="a")))
try:
    with database as transaction:
        transaction["runs"].insert({"task": "b", "seed": 1})
        transaction["others"].insert({"task": "b"})
        raise KeyError
except KeyError:
    print(dataset.connect("sqlite:///runs.db")["runs"].columns, database.tables, table.count())
table.insert({"task": 7, "reward": "0.5"})
print([(row["task"], row["reward"]) for row in table.find(order_by="-id", _limit=1)], table.count(task=7))
print(table.upsert({"task": "a", "reward": 2}, ["task"]), table.upsert({"task": "c", "reward": 2}, ["task"]))
PYTHON
python rows.py >out 2>errors || { cat errors >&2; exit 2; }
seen "misspelt: count, an unknown operator, delete, update by it" "$(sed -n 1p out)" "0 0 False 0"
seen "a misspelt value in update" "$(sed -n 2p out)" "1 {'id': 1, 'task': 'a', 'reward': 1, 'rward': 7}"
seen "a transaction that was taken back: columns, tables, rows" "$(sed -n 3p out)" "['id', 'task', 'reward', 'rward', 'seed'] ['runs'] 1"
seen "7 as a text, 0.5 as a number" "$(sed -n 4p out)" "[('7', 0.5)] 1"
seen "upsert of an old row, and of a new one" "$(sed -n 5p out)" "True 3"
