#!/usr/bin/env bash
# mariadb-dump with MariaDB 10.11.19, as in Debian 12: a database through a dump
#
# Guess: the copy is as the database was; what is left out is said, or makes an error of the dump.
# Behaviour: 1234567 of a FLOAT is 1234570 in the copy. The history of a table WITH SYSTEM VERSIONING is gone, and its rows begin at the time of the
# copy. A sequence goes on at 1001 after 2. Functions, procedures and events are left out, with status 0; a view that calls a function is in the dump,
# which then ends in the middle with an error when it is read.
. "$(dirname "$0")/common.sh"
. "$here/mariadb.sh"

dump() { mariadb-dump --no-defaults --socket="$socket" --user=root "$@"; }
sql tasks <<'SQL'
CREATE TABLE t (id int PRIMARY KEY, share float, state varchar(9)) WITH SYSTEM VERSIONING;
INSERT INTO t VALUES (1, 1234567, 'new'), (2, 16777215, 'new');
UPDATE t SET state = 'done' WHERE id = 1;
CREATE SEQUENCE numbers;
DO NEXTVAL(numbers), NEXTVAL(numbers);
CREATE PROCEDURE twice(n int) SELECT 2 * n;
CREATE EVENT nightly ON SCHEDULE EVERY 1 DAY DO DELETE FROM t;
SQL
sql <<<'CREATE DATABASE copy'
dump tasks >dump.sql && status=0 || status=$?
seen "status of the dump" "$status" 0
sql copy <dump.sql
both() { for database in tasks copy; do sql "$database" <<<"$1" | xargs; done | paste -sd'|'; }
seen "FLOAT values, before | after" "$(both 'SELECT share = 1234567 FROM t WHERE id = 1; SELECT share = 16777215 FROM t WHERE id = 2')" "1 1|0 0"
seen "states of row 1 over time" "$(both 'SELECT state FROM t FOR SYSTEM_TIME ALL WHERE id = 1 ORDER BY ROW_START')" "new done|done"
seen "the next number after 2" "$(both 'SELECT NEXTVAL(numbers)')" "3|1001"
seen "procedures and events" "$(both 'SELECT count(*) FROM information_schema.routines WHERE routine_schema = database();
    SELECT count(*) FROM information_schema.events WHERE event_schema = database()')" "1 1|0 0"
sql tasks <<<'CREATE FUNCTION one() RETURNS int RETURN 1; CREATE VIEW ones AS SELECT one(), id FROM t; CREATE VIEW zeros AS SELECT 0'
dump tasks >dump.sql && status=0 || status=$?
seen "status of the dump with a function and a view that calls it" "$status" 0
sql <<<'CREATE DATABASE other'
sql other <dump.sql 2>errors && status=0 || status=$?
seen "status of reading it" "$status $(grep -o 'FUNCTION.*exist' errors)" "1 FUNCTION other.one does not exist"
