#!/usr/bin/env bash
# DuckDB 2.0.0 with pandas 3.1.1: a table of rollouts that goes in as a data frame, and results that come out as one
#
# Guess: columns keep their names and values; `df()` has the values that `fetchall()` has.
# Behaviour: of columns that differ in case alone, the second has another name, and its own name means the first. Dicts with other keys are
# maps of texts. By `df()`, the sum of whole numbers is a float, so that 9007199254740993 is one less, and so are decimals. 2.5 as
# INTEGER is 3, and 2 if it is a DOUBLE, as all floats of a data frame are.
. "$(dirname "$0")/common.sh"
packages duckdb==2.0.0 pandas==3.1.1

cat >through.py <<'PYTHON'
import duckdb
import pandas
rollouts = pandas.DataFrame({"Task": ["first"], "task": ["second"], "reward": [2.5]})
print(duckdb.sql("SELECT * FROM rollouts").columns, duckdb.sql("SELECT task FROM rollouts").fetchall())
calls = pandas.DataFrame({"call": [{"name": "read", "path": "a"}, {"name": "wait", "seconds": 3}]})
print(duckdb.sql("SELECT typeof(call), call FROM calls").fetchall()[1])
total = duckdb.sql("SELECT sum(tokens) AS total, max(price) AS price FROM (VALUES (9007199254740993, 12345678901234567.89)) AS t (tokens, price)")
print(*total.fetchall()[0], *total.df().iloc[0].tolist())
print(*duckdb.sql("SELECT 2.5::INTEGER, (SELECT reward::INTEGER FROM rollouts), '2.5'::INTEGER").fetchall()[0])
PYTHON
python through.py >out
seen "columns, and the column task" "$(sed -n 1p out)" "['Task', 'task_1', 'reward'] [('first',)]"
seen "a dict beside one with other keys" "$(sed -n 2p out)" "('MAP(VARCHAR, VARCHAR)', {'name': 'wait', 'seconds': '3'})"
seen "sum and decimal, by fetchall and by df" "$(sed -n 3p out)" \
    "9007199254740993 12345678901234567.89 9007199254740992.0 1.2345678901234568e+16"
seen "2.5, 2.5 of a data frame, and '2.5' as INTEGER" "$(sed -n 4p out)" "3 2 3"
