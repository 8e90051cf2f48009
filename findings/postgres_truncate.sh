#!/usr/bin/env bash
# PostgreSQL 15.18 (of the system): a check reads the state of a database in one transaction, while a tool empties or changes tables
#
# Guess: REPEATABLE READ shows all tables as they were when the transaction began to read.
# Behaviour: a table that TRUNCATE empties after that is empty for the check, if it has not read this table yet, and so is one that ALTER
# TABLE wrote anew, though its rows are there in the next transaction. Rows that DELETE removes are still seen. A sequence has its
# new value.
. "$(dirname "$0")/common.sh"
. "$here/postgres.sh"

for table in deleted truncated altered; do sql "CREATE TABLE $table AS SELECT 1 AS amount"; done
sql 'CREATE SEQUENCE numbers'
cat >check.sql <<SQL
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 'begun';
\! '$bin/psql' -qX -h '$work' postgres -c 'DELETE FROM deleted; TRUNCATE truncated'
\! '$bin/psql' -qX -h '$work' postgres -c 'ALTER TABLE altered ALTER amount TYPE text'
\! '$bin/psql' -qX -h '$work' postgres -c "SELECT setval('numbers', 9)" >/dev/null
SELECT 'deleted ' || count(*) FROM deleted;
SELECT 'truncated ' || count(*) FROM truncated;
SELECT 'altered ' || count(*) FROM altered;
SELECT 'sequence ' || last_value FROM numbers;
COMMIT;
SELECT 'later ' || count(*) FROM altered;
SQL
chmod a+r check.sql
"${as[@]}" "$bin/psql" -qAtX -h "$work" postgres <check.sql >out
seen "rows of a table from which all was deleted" "$(sed -n 2p out)" "deleted 1"
seen "of one that was truncated" "$(sed -n 3p out)" "truncated 0"
seen "of one whose column has another type" "$(sed -n 4p out)" "altered 0"
seen "the last number of a sequence" "$(sed -n 5p out)" "sequence 9"
seen "rows of the changed table, in the next transaction" "$(sed -n 6p out)" "later 1"
