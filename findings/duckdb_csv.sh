#!/usr/bin/env bash
# DuckDB 2.0.0: tables of rewards and answers in CSV, read by their name alone
#
# Guess: each line is a row, or an error says which one is not; texts stay as they are unless they are numbers.
# Behaviour: it looks for the dialect with which lines agree, and drops those that do not without a word: a comma too much in
# the last line, and only that line is left, as its own columns; in the middle, and all is one column. A row "#2,y" between
# numbered ones is a comment. Columns of yes and no, or T and F, are booleans; 'a' loses its quotes; "" is NULL.
. "$(dirname "$0")/common.sh"
packages duckdb==2.0.0

cat >read.py <<'PYTHON'
import duckdb
for text in (
    "task,answer\n1,x\n2,y\n3,z\n", "task,answer\n1,x\n2,y\n3,no, thanks\n", "task,answer\n1,x\n2,no, thanks\n3,z\n",
    "task,answer\n1,x\n#2,y\n3,z\n", "answer\nyes\nno\n", "answer\nyes\nno\nmaybe\n", "answer\n'a'\n'b'\n", 'answer\n""\nx\n',
):
    with open("table.csv", "w") as file:
        file.write(text)
    table = duckdb.sql("FROM 'table.csv'")
    print(table.columns, table.fetchall())
PYTHON
python read.py >out
seen "three rows" "$(sed -n 1p out)" "['task', 'answer'] [(1, 'x'), (2, 'y'), (3, 'z')]"
seen "a comma in the last answer" "$(sed -n 2p out)" "['column0', 'column1', 'column2'] [(3, False, ' thanks')]"
seen "a comma in the second answer" "$(sed -n 3p out)" "['task,answer'] [('1,x',), ('2,no, thanks',), ('3,z',)]"
seen "the second row begins with #" "$(sed -n 4p out)" "['task', 'answer'] [(1, 'x'), (3, 'z')]"
seen "yes and no" "$(sed -n 5p out)" "['answer'] [(True,), (False,)]"
seen "yes, no and maybe" "$(sed -n 6p out)" "['answer'] [('yes',), ('no',), ('maybe',)]"
seen "in single quotes" "$(sed -n 7p out)" "['answer'] [('a',), ('b',)]"
seen "an empty text in quotes" "$(sed -n 8p out)" "['answer'] [(None,), ('x',)]"
