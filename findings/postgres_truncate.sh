#!/usr/bin/env bash
# PostgreSQL 15.18 (of the system): a check that reads the state of a database in one transaction, while the next task empties a table
#
# Guess: REPEATABLE READ shows all tables as they were when the transaction began to read.
# Behaviour: a table that TRUNCATE empties after that is empty for it, if it had not read this table yet, and so is one that ALTER TABLE wrote
# anew; rows that DELETE removes are still there. A sequence has its new value.
. "$(dirname "$0")/common.sh"
. "$here/postgres.sh"

sql 'CREATE TABLE first AS SELECT 1 AS i; CREATE TABLE truncated AS SELECT 1 AS i; CREATE TABLE deleted AS SELECT 1 AS i; CREATE TABLE altered AS SELECT 1 AS i; CREATE SEQUENCE numbers'
type sql
