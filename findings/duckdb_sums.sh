#!/usr/bin/env bash
# DuckDB 1.4.1: the sum of a column of DOUBLE, asked for again and again in one connection, with nothing written in between
#
# Guess: the same number, as rows keep their order and a SELECT without ORDER BY gives them in it.
# Behaviour: other last digits, as each thread sums the parts of the table that it happens to take; with the more exact `fsum`,
# too. It is one number with one thread, or for DECIMAL.
. "$(dirname "$0")/common.sh"
packages duckdb==1.4.1

cat >sums.py <<'PYTHON'
import duckdb
connection = duckdb.connect()
connection.execute("CREATE TABLE samples AS SELECT sin(i) AS loss, i % 3 AS part FROM range(4000000) AS _(i)")
connection.execute("SET threads = 4")
def numbers(question):
    return len({connection.execute(question).fetchone() for _ in range(40)})
what = "sum(loss)", "avg(loss)", "fsum(loss)", "sum(loss::DECIMAL(18, 9))"
questions = [f"SELECT {each} FROM samples WHERE part < 2" for each in what]
print(*(numbers(question) > 1 for question in questions))
connection.execute("SET threads = 1")
print(*(numbers(question) > 1 for question in questions))
PYTHON
python sums.py >out
seen "more than one number for sum, avg, fsum, the sum of DECIMAL: four threads" "$(sed -n 1p out)" "True True True False"
seen "one thread" "$(sed -n 2p out)" "False False False False"
