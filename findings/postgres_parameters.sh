#!/usr/bin/env bash
# psycopg2 2.9.13, psycopg 3.3.9 and asyncpg 0.32.0 with PostgreSQL 15.18 (of the system): Python's numbers as parameters
#
# Guess: the same statement with the same numbers has the same result, by each of them.
# Behaviour: each sends other types. For psycopg a small int is a `smallint`, and 300 * 300 is out of range; a float is `numeric`
# for psycopg2, so that 2.5 is rounded to 3, and 2 for the others. What asyncpg sends has the type that the server guesses: for
# a = 0.1 a `numeric` with all digits of the float, which is not 0.1, and a Decimal of 2.5 is rounded to 2.
. "$(dirname "$0")/common.sh"
packages psycopg2-binary==2.9.13 'psycopg[binary]==3.3.9' asyncpg==0.32.0
. "$here/postgres.sh"

cat >ask.py <<'PYTHON'
import asyncio, asyncpg, decimal, psycopg, psycopg2, sys
host, user = sys.argv[1:]
def by(driver, statement, values):
    connection = driver.connect(host=host, user=user, dbname="postgres")
    try:
        cursor = connection.cursor()
        cursor.execute(statement, values)
        return cursor.fetchone()[0]
    except driver.Error as error:
        return type(error).__name__
    finally:
        connection.close()
async def by_asyncpg(statement, values):
    connection = await asyncpg.connect(host=host, user=user, database="postgres")
    try:
        return (await connection.fetch(statement, *values))[0][0]
    except asyncpg.PostgresError as error:
        return type(error).__name__
    finally:
        await connection.close()
for statement, *values in (
    ("SELECT %s * %s + 0", 300, 300), ("SELECT round(%s)", 2.5), ("SELECT round(%s)", decimal.Decimal("2.5")),
    ("SELECT round(%s, 2)", 2.675), ("SELECT %s = 0.1", 0.1),
):
    numbered = statement
    for place in range(len(values)):
        numbered = numbered.replace("%s", f"${place + 1}", 1)
    print(by(psycopg2, statement, values), by(psycopg, statement, values), asyncio.run(by_asyncpg(numbered, values)))
PYTHON
"${as[@]}" venv/bin/python ask.py "$work" "$(sql 'SELECT current_user')" >out
seen "300 * 300" "$(sed -n 1p out)" "90000 NumericValueOutOfRange AmbiguousFunctionError"
seen "round(2.5)" "$(sed -n 2p out)" "3 2.0 2.0"
seen "round(Decimal('2.5'))" "$(sed -n 3p out)" "3 3 2.0"
seen "round(2.675, 2)" "$(sed -n 4p out)" "2.68 UndefinedFunction 2.67"
seen "0.1 = 0.1" "$(sed -n 5p out)" "True True False"
