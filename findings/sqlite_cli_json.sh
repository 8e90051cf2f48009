#!/usr/bin/env bash
# sqlite3 3.40.1 (of the system), the program: rows of a query as JSON, as CSV, and as it prints them by itself
#
# Guess: JSON that can be read, [] for no rows; CSV that can be imported again; numbers as they are.
# Behaviour: with -json, no rows are an empty text, two queries are two documents, and a blob is its bytes, which are no UTF-8.
# Lists and CSV have 15 digits, so that 0.1 + 0.2 is 0.3, and JSON has more. In CSV, NULL and "" differ, but `.import` makes an
# empty text of both; a row that lacks a field is filled with NULL, and one too many is dropped, with status 0.
. "$(dirname "$0")/common.sh"
needs sqlite3 python3
sqlite3 --version | cut -d ' ' -f 1

query() { sqlite3 "$@"; }
seen "-json, no rows" "[$(query -json :memory: "SELECT 1 AS a WHERE 0")]" "[]"
seen "-json, two queries" "$(query -json :memory: "SELECT 1 AS a; SELECT 2 AS a" | xargs)" "[{a:1}] [{a:2}]"
query -json :memory: "SELECT x'00e9' AS a" >blob.json
seen "-json, a blob" "$(python3 -c 'import json; json.load(open("blob.json", encoding="utf-8"))' 2>&1 | tail -n 1 | cut -d : -f 1)" UnicodeDecodeError
sum="SELECT 0.1 + 0.2 AS a, 1e15 + 0.3 AS b"
seen "0.1 + 0.2, 1e15 + 0.3" "$(query :memory: "$sum")" "0.3|1.0e+15"
seen "as CSV" "$(query -csv :memory: "$sum" | tr -d '\r')" "0.3,1.0e+15"
seen "as JSON" "$(query -json :memory: "$sum")" '[{"a":0.3000000000000000444,"b":1000000000000000.25}]'
query -csv :memory: "SELECT NULL, ''" | tr -d '\r' >rows.csv
seen "NULL and an empty text as CSV" "$(cat rows.csv)" ',""'
seen "imported" "$(query :memory: "CREATE TABLE t (a, b)" ".mode csv" ".import rows.csv t" ".mode quote" "SELECT * FROM t")" "'',''"
printf 'a\nb,1,2\n' >rows.csv
seen "rows of one and three fields" "$(query :memory: "CREATE TABLE t (a, b)" ".mode csv" ".import rows.csv t" ".mode quote" "SELECT * FROM t" \
    2>log | xargs -d '\n') $?" "'a',NULL 'b','1' 0"
