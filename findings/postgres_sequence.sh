#!/usr/bin/env bash
# PostgreSQL 15.18 (of the system): the next value of a sequence after the server was killed
#
# Guess: after 1 comes 2, for what was answered is durable.
# Behaviour: the log is written for 32 values ahead, and what it says counts after a crash: after 1 comes 34. After
# an orderly stop nothing is left out.
. "$(dirname "$0")/common.sh"
. "$here/postgres.sh"

sql 'CREATE SEQUENCE s'
seen first "$(sql "SELECT nextval('s')")" 1
postgres -m immediate stop
start
seen "after an immediate stop" "$(sql "SELECT nextval('s')")" 34
postgres -m fast stop
start
seen "after an orderly stop" "$(sql "SELECT nextval('s')")" 35
