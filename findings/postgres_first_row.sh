#!/usr/bin/env bash
# PostgreSQL 15.18 (of the system): one query without ORDER BY, twice, with nothing written between
#
# Guess: no order is promised, but the same query over the same table, by one session at a time, begins with the same row.
# Behaviour: a scan of a table larger than a quarter of shared_buffers begins where the last scan of any session stood, so
# the first row depends on who has read how much before.
. "$(dirname "$0")/common.sh"
. "$here/postgres.sh"

sql 'CREATE TABLE t AS SELECT i FROM generate_series(1, 100000) i'
first() { sql 'SELECT i FROM t LIMIT 1'; }
before=$(first)
sql 'SELECT count(*) FROM (SELECT i FROM t LIMIT 50000) AS half' >/dev/null
after=$(first)
echo "first rows: $before, then $after"
seen "the first row before" "$before" 1
seen "after another session has read a half" "$([ "$after" -gt 40000 ] && echo "one of the middle")" "one of the middle"
