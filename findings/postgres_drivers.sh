#!/usr/bin/env bash
# psycopg2 2.9.13, psycopg 3.3.9 and asyncpg 0.32.0 with PostgreSQL 15.18 (of the system): what they return for one text
#
# Guess: the same rows and values; for two statements the result of the last, or an error; a month is a month.
# Behaviour: of two statements psycopg2 has the last result, psycopg the first, and asyncpg's `fetch` refuses them. The date
# `infinity` is 9999-12-31 in psycopg2 and asyncpg, as a real date, and an error in psycopg. An interval of one month comes as
# 30 days, in each of them, so that a sum in Python is another than the server's.
. "$(dirname "$0")/common.sh"
packages psycopg2-binary==2.9.13 'psycopg[binary]==3.3.9' asyncpg==0.32.0
. "$here/postgres.sh"

cat >ask.py <<'PYTHON'
import asyncio, asyncpg, datetime, psycopg, psycopg2, sys
host, user = sys.argv[1:]
DAY = datetime.date(2026, 1, 31)
def by(driver):
    def ask(statement):
        connection = driver.connect(host=host, user=user, dbname="postgres")
        try:
            cursor = connection.cursor()
            cursor.execute(statement)
            return cursor.fetchone()[0]
        except driver.Error as error:
            return type(error).__name__
        finally:
            connection.close()
    return ask
def by_asyncpg(statement):
    async def ask():
        connection = await asyncpg.connect(host=host, user=user, database="postgres")
        try:
            return (await connection.fetch(statement))[0][0]
        except asyncpg.PostgresError as error:
            return type(error).__name__
        finally:
            await connection.close()
    return asyncio.run(ask())
drivers = by(psycopg2), by(psycopg), by_asyncpg
for statement in ("SELECT 1; SELECT 2", "SELECT date 'infinity'"):
    print(*(ask(statement) for ask in drivers))
print(*(DAY + ask("SELECT interval '1 month'") for ask in drivers), drivers[0](f"SELECT (date '{DAY}' + interval '1 month')::date"))
PYTHON
"${as[@]}" venv/bin/python ask.py "$work" "$(sql 'SELECT current_user')" >out
seen "SELECT 1; SELECT 2" "$(sed -n 1p out)" "2 1 PostgresSyntaxError"
seen "the date infinity" "$(sed -n 2p out)" "9999-12-31 DataError 9999-12-31"
seen "a month after 2026-01-31, and by the server" "$(sed -n 3p out)" "2026-03-02 2026-03-02 2026-03-02 2026-02-28"
