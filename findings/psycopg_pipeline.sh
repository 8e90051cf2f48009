#!/usr/bin/env bash
# psycopg 3.3.9 and psycopg2 2.9.13 with PostgreSQL 15.18 (of the system): autocommit, and a statement that fails behind others
#
# Guess: with autocommit, what was written before it stays: within `with connection.pipeline()`, too, and of `executemany`, as with psycopg2.
# Behaviour: all statements of a pipeline since its last `sync` are one transaction, also one whose rows were fetched already, and so are
# those of `executemany`, which uses one: nothing stays. With psycopg2 the first two stay. The error comes at the end of the block, so that Python
# runs on behind the statement that fails, and `rowcount` is -1 before rows are fetched.
. "$(dirname "$0")/common.sh"
packages 'psycopg[binary]==3.3.9' psycopg2-binary==2.9.13
. "$here/postgres.sh"

cat >insert.py <<'PYTHON'
import sys, psycopg, psycopg2
where = f"host={sys.argv[1]} user={sys.argv[2]} dbname=postgres"
one = psycopg.connect(where, autocommit=True)
two = psycopg2.connect(where)
two.autocommit = True
one.execute("CREATE TABLE steps (step integer PRIMARY KEY)")
add = "INSERT INTO steps VALUES (%s)"
def stays(insert):
    one.execute("DELETE FROM steps")
    said = []
    try:
        insert(said.append)
    except (psycopg.errors.UniqueViolation, psycopg2.errors.UniqueViolation):
        said.append("error")
    print(*said, [step for step, in one.execute("SELECT step FROM steps ORDER BY step")])
def singly(say):
    for step in (1, 2, 1):
        one.execute(add, [step])
def pipeline(say):
    with one.pipeline():
        singly(say)
        say("runs on,")
def fetched(say):
    with one.pipeline():
        say(one.execute(add, [1]).rowcount)
        say(one.execute("SELECT step FROM steps").fetchall())
        one.execute(add, [1])
def synced(say):
    with one.pipeline() as pipeline:
        one.execute(add, [1])
        pipeline.sync()
        one.execute(add, [1])
many = [[1], [2], [1]]
for insert in (singly, pipeline, fetched, synced, lambda say: one.cursor().executemany(add, many), lambda say: two.cursor().executemany(add, many)):
    stays(insert)
PYTHON
"${as[@]}" venv/bin/python insert.py "$work" "$(sql 'SELECT current_user')" 2>errors >out || { cat errors >&2; exit 2; }
seen "1, 2, and 1 again: what stays" "$(sed -n 1p out)" "error [1, 2]"
seen "in a pipeline" "$(sed -n 2p out)" "runs on, error []"
seen "1 with its rowcount, what there is, and 1 again, in a pipeline" "$(sed -n 3p out)" "-1 [(1,)] error []"
seen "1, sync, and 1 again, in a pipeline" "$(sed -n 4p out)" "error [1]"
seen "by executemany" "$(sed -n 5p out)" "error []"
seen "by executemany of psycopg2" "$(sed -n 6p out)" "error [1, 2]"
