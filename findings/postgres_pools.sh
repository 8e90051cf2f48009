#!/usr/bin/env bash
# psycopg-pool 3.3.3, SQLAlchemy 2.1.9 and asyncpg 0.32.0 with PostgreSQL 15.18 (of the system): a connection of a pool, given back and taken again
#
# Guess: the next one that takes it finds a session as new: time zone, temporary tables, locks and prepared statements are gone.
# Behaviour: with the pools of psycopg and SQLAlchemy, which roll back only, all of it is there, and "read only" as well. asyncpg sets back
# settings and locks, but temporary tables and statements of PREPARE stay.
. "$(dirname "$0")/common.sh"
packages 'psycopg[binary]==3.3.9' psycopg_pool==3.3.3 asyncpg==0.32.0 SQLAlchemy==2.1.9
. "$here/postgres.sh"

cat >pools.py <<'PYTHON'
import asyncio, sys
import asyncpg, psycopg_pool, sqlalchemy
host, user = sys.argv[1:]
LEAVES = (
    "SET timezone TO 'Asia/Tokyo'", "CREATE TEMPORARY TABLE notes AS SELECT 1", "SELECT pg_advisory_lock(7)", "LISTEN news",
    "PREPARE two AS SELECT 2", "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
)
FINDS = (
    "SELECT current_setting('timezone') = 'Asia/Tokyo'", "SELECT count(*) FROM pg_class WHERE relname = 'notes'",
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", "SELECT count(*) FROM pg_listening_channels()",
    "SELECT count(*) FROM pg_prepared_statements WHERE from_sql", "SELECT current_setting('transaction_read_only') = 'on'",
)
with psycopg_pool.ConnectionPool(f"host={host} user={user} dbname=postgres", min_size=1, max_size=1) as pool:
    with pool.connection() as connection:
        for statement in LEAVES:
            connection.execute(statement)
    with pool.connection() as connection:
        print(*(connection.execute(statement).fetchone()[0] for statement in FINDS))
engine = sqlalchemy.create_engine(f"postgresql+psycopg://{user}@/postgres?host={host}", pool_size=1, max_overflow=0)
with engine.begin() as connection:
    for statement in LEAVES:
        connection.exec_driver_sql(statement)
with engine.connect() as connection:
    print(*(connection.exec_driver_sql(statement).scalar() for statement in FINDS))
engine.dispose()
async def asynchronous():
    async with asyncpg.create_pool(host=host, user=user, database="postgres", min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection:
            for statement in LEAVES:
                await connection.execute(statement)
        async with pool.acquire() as connection:
            print(*[await connection.fetchval(statement) for statement in FINDS])
asyncio.run(asynchronous())
PYTHON
"${as[@]}" venv/bin/python pools.py "$work" "$(sql 'SELECT current_user')" 2>errors >out || { cat errors >&2; exit 2; }
echo "time zone; temporary tables, locks, channels and statements; read only"
seen "psycopg-pool" "$(sed -n 1p out)" "True 1 1 1 1 True"
seen "SQLAlchemy" "$(sed -n 2p out)" "True 1 1 1 1 True"
seen "asyncpg" "$(sed -n 3p out)" "False 1 0 0 1 False"
