#!/usr/bin/env bash
# sqlite3 3.40.1 (of the system), the program: a transaction of which one statement is wrong, and values of parameters
#
# Guess: a statement that fails ends the script, and the transaction is taken back; a parameter is the text that was given.
# Behaviour: a script at its standard input goes on behind each error, so that COMMIT keeps the other statements; the status is 1
# all the same. With -bail, or as an argument, it ends there. `.param set @day 2026-01-31` computes: the value is 1994; 007 is 7.
. "$(dirname "$0")/common.sh"
needs sqlite3
sqlite3 --version | cut -d ' ' -f 1

script="BEGIN;
INSERT INTO rewards VALUES ('a', 1);
INSERT INTO rewards VALUES ('b');
COMMIT;"
sqlite3 scores.db "CREATE TABLE rewards (task, reward)"
try() { "$@" >said 2>&1 && echo "status 0" || echo "status $?"; }
rows() { sqlite3 scores.db "SELECT count(*) FROM rewards; DELETE FROM rewards;"; }
seen "as an argument" "$(try sqlite3 scores.db "$script"), rows $(rows)" "status 1, rows 0"
seen "with -bail" "$(try sqlite3 -bail scores.db <<<"$script"), rows $(rows)" "status 1, rows 0"
seen "at standard input" "$(try sqlite3 scores.db <<<"$script"), rows $(rows)" "status 1, rows 1"
seen "by .read" "$(echo "$script" >script.sql; try sqlite3 scores.db ".read script.sql"), rows $(rows)" "status 1, rows 1"
parameter() { sqlite3 :memory: ".param set @value $1" "SELECT @value, typeof(@value)"; }
seen "2026-01-31" "$(parameter 2026-01-31)" "1994|integer"
seen "007" "$(parameter 007)" "7|integer"
seen "a name" "$(parameter task)" "task|text"
