#!/usr/bin/env bash
# PyMySQL 1.2.4 and mysql-connector-python 26.10.0 with MariaDB 10.11.19, as in Debian 12: the same statements by both
#
# Guess: the same results, as both follow DB-API, with %s for parameters; what was written comes back.
# Behaviour: with parameters, %% is % for PyMySQL and stays %% for the other. NaN is an error for one, and NULL for the other. The date 0000-00-00 is
# a text for one, None for the other; bits are bytes or a number, a SET is a text or a set. Columns a.id and b.id are "id" and "b.id" in the dict of
# one, and the last one in that of the other. After `executemany` with RETURNING one has the last id, the other all. For both, 1234567 of a FLOAT is
# 1234570, though it equals 1234567; a time of Tokyo is stored without its zone, and `lastrowid` of three rows is the id of the first.
. "$(dirname "$0")/common.sh"
packages PyMySQL==1.2.4 mysql-connector-python==26.10.0
. "$here/mariadb.sh"

cat >drivers.py <<'PYTHON'
import datetime, math, sys
import mysql.connector, pymysql
TABLE = """CREATE OR REPLACE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, name varchar(20), share float, day date, passed bit(1), tags set('a', 'b'),
    at datetime)"""
def run(connection, dict_cursor):
    cursor = connection.cursor()
    def seen(statement, parameters=None, many=False):
        try:
            (cursor.executemany if many else cursor.execute)(statement, parameters)
        except Exception as error:
            return type(error).__name__
        return [list(row) for row in cursor.fetchall()] if cursor.description else None
    seen(TABLE)
    print(seen("SELECT '%%', %s", (1,)), seen("SELECT %s", (math.nan,)))
    seen("SET sql_mode = ''")
    seen("INSERT INTO t VALUES (1, 'a', 1234567, '0000-00-00', 1, 'a,b', NULL)")
    print(seen("SELECT day, passed FROM t"), type(seen("SELECT tags FROM t")[0][0]).__name__)
    print(seen("SELECT share, share = 1234567 FROM t"))
    tokyo = datetime.timezone(datetime.timedelta(hours=9))
    seen("UPDATE t SET at = %s", (datetime.datetime(2026, 1, 1, 12, tzinfo=tokyo),))
    print(seen("SELECT CAST(at AS char) FROM t"))
    both = dict_cursor(connection)
    both.execute("SELECT a.id, b.id FROM (SELECT 1 id) a, (SELECT 2 id) b")
    print(both.fetchall())
    print(seen("INSERT INTO t (name) VALUES (%s) RETURNING id", [("b",), ("c",), ("d",)], True))
    seen("INSERT INTO t (name) VALUES (%s)", [("e",), ("f",), ("g",)], True)
    print(cursor.lastrowid, seen("SELECT max(id) FROM t"))
where = {"unix_socket": sys.argv[1], "user": "root", "database": "tasks", "autocommit": True}
run(pymysql.connect(**where), lambda connection: connection.cursor(pymysql.cursors.DictCursor))
run(mysql.connector.connect(**where, use_pure=True, collation="utf8mb4_general_ci"), lambda connection: connection.cursor(dictionary=True))
PYTHON
python drivers.py "$socket" 2>errors >out || { cat errors >&2; exit 2; }
seen "PyMySQL: %% with parameters; NaN" "$(sed -n 1p out)" "[['%', 1]] ProgrammingError"
seen "the other" "$(sed -n 8p out)" "[['%%', 1]] [[None]]"
seen "PyMySQL: the date 0000-00-00, a bit; the type of a set" "$(sed -n 2p out)" "[['0000-00-00', b'\\x01']] str"
seen "the other" "$(sed -n 9p out)" "[[None, 1]] set"
seen "PyMySQL: 1234567 as FLOAT; whether it is 1234567" "$(sed -n 3p out)" "[[1234570.0, 1]]"
seen "the other" "$(sed -n 10p out)" "[[1234570.0, 1]]"
seen "PyMySQL: noon in Tokyo" "$(sed -n 4p out)" "[['2026-01-01 12:00:00']]"
seen "the other" "$(sed -n 11p out)" "[['2026-01-01 12:00:00']]"
seen "PyMySQL: a.id = 1 and b.id = 2 as a dict" "$(sed -n 5p out)" "[{'id': 1, 'b.id': 2}]"
seen "the other" "$(sed -n 12p out)" "[{'id': 2}]"
seen "PyMySQL: three rows by executemany with RETURNING" "$(sed -n 6p out)" "[[4]]"
seen "the other" "$(sed -n 13p out)" "[[2], [3], [4]]"
seen "PyMySQL: lastrowid of three rows, and the last id" "$(sed -n 7p out)" "5 [[7]]"
seen "the other" "$(sed -n 14p out)" "5 [[7]]"
