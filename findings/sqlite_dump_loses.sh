#!/usr/bin/env bash
# sqlite3 3.40.1: a database that is written as text by `.dump` and read again
#
# Guess: the same database; this is what dumps are for.
# Behaviour: rows of tables without an integer key have other row numbers, a text ends at its first zero character, and
# user_version and application_id are 0, so that migrations run again. VACUUM INTO keeps all of these.
. "$(dirname "$0")/common.sh"
needs sqlite3
sqlite3 --version | cut -d ' ' -f 1

sqlite3 task.db "CREATE TABLE logs (line); INSERT INTO logs VALUES ('first'), ('second'), ('third');
    DELETE FROM logs WHERE line = 'first';
    CREATE TABLE texts (line); INSERT INTO texts VALUES ('ab' || char(0) || 'cd');
    PRAGMA user_version = 7; PRAGMA application_id = 9;"
sqlite3 task.db .dump >dump.sql
sqlite3 read.db <dump.sql
sqlite3 task.db "VACUUM INTO 'vacuum.db'"
shown() {
    sqlite3 "$1" "SELECT rowid FROM logs WHERE line = 'third'" "SELECT length(CAST(line AS BLOB)) FROM texts" \
        "PRAGMA user_version" "PRAGMA application_id" | xargs
}
seen "row number, bytes of the text, two settings" "$(shown task.db)" "3 5 7 9"
seen "the same after .dump" "$(shown read.db)" "2 2 0 0"
seen "the same after VACUUM INTO" "$(shown vacuum.db)" "3 5 7 9"
