#!/usr/bin/env bash
# SQLAlchemy 2.1.9: a model's statement through `text()`, whose literals and comments have colons; and columns of one name
#
# Guess: a statement without parameters goes to the database as it is.
# Behaviour: a colon before a word is a parameter also in literals and comments, unless a letter, a digit or a colon stands
# before it: '{"a": 1}' is fine and '{"a":1}' an error. A backslash before a colon is taken away without a word: a pattern
# and a path are others. `exec_driver_sql` changes nothing. Of columns of one name the mapping has the last.
. "$(dirname "$0")/common.sh"
packages SQLAlchemy==2.1.9

cat >ask.py <<'PYTHON'
import sqlalchemy
with sqlalchemy.create_engine("sqlite://").connect() as connection:
    for statement in ("""SELECT '{"a": 1}'""", """SELECT '{"a":1}'""", "SELECT 2 -- as :two", r"SELECT 'C\:' || '\d\:'"):
        answers = []
        for ask in (lambda: connection.execute(sqlalchemy.text(statement)), lambda: connection.exec_driver_sql(statement)):
            try:
                answers.append(ask().scalar())
            except sqlalchemy.exc.StatementError as error:
                answers.append(type(error.orig).__name__)
        print(*answers)
    print(dict(connection.execute(sqlalchemy.text("SELECT 1 AS n, 2 AS n")).mappings().one()))
PYTHON
python ask.py >out
seen 'the literal {"a": 1}, by text and by exec_driver_sql' "$(sed -n 1p out)" '{"a": 1} {"a": 1}'
seen 'the literal {"a":1}' "$(sed -n 2p out)" 'InvalidRequestError {"a":1}'
seen "a comment" "$(sed -n 3p out)" "InvalidRequestError 2"
seen "backslashes before colons" "$(sed -n 4p out)" 'C:\d: C\:\d\:'
seen "1 AS n, 2 AS n" "$(sed -n 5p out)" "{'n': 2}"
