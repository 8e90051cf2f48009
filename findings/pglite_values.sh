#!/usr/bin/env bash
# @electric-sql/pglite 0.5.17 (PostgreSQL 18 in WebAssembly), in a process whose time zone is Tokyo: values of results and parameters
#
# Guess: one type of JavaScript for one type of PostgreSQL, as by node-postgres; a Date comes back as it was.
# Behaviour: an int8 is a number or a BigInt, as its size is, in one column and one array; a sum of int is a number, a sum of int8 always a text. A timestamp is read as a time of the
# process's zone, but a Date is written as one of UTC, so that it comes back nine hours earlier; "infinity" as a date is the number Infinity. An object for
# text is "[object Object]".
. "$(dirname "$0")/common.sh"
needs node npm
export HOME=$work TZ=Asia/Tokyo
npm install --silent --no-audit --no-fund @electric-sql/pglite@0.5.17 >npm.log 2>&1 || { cat npm.log >&2; exit 2; }
echo "versions: @electric-sql/pglite@0.5.17; Node.js $(node --version)"

cat >values.mjs <<'JS'
import { PGlite } from '@electric-sql/pglite'
const database = new PGlite()
const shown = value => Array.isArray(value) ? value.map(shown).join(' ') : `${typeof value} ${value instanceof Date ? value.toISOString() : value}`
const query = async (...given) => console.log((await database.query(...given)).rows.map(row => Object.values(row).map(shown).join(', ')).join('; '))
await query('select unnest(array[5, 9007199254740993])')
await query('select array[5, 9007199254740993]')
await query('select sum(x) from (values (1), (2)) as t(x)')
await query('select sum(x) from (values (1::int8), (2)) as t(x)')
const given = new Date('2026-01-01T20:00:00Z')
await query('select $1::timestamp as one, $2::timestamptz as other', [given, given])
await query("select 'infinity'::date as one, date '2026-01-01' as other")
await query('select $1::text', [{ a: 1 }])
await database.close()
JS
node values.mjs >out 2>errors || { cat errors >&2; exit 2; }
line=0
values() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
values "two numbers of a column int8" "number 5; bigint 9007199254740993"
values "as an array" "number 5 bigint 9007199254740993"
values "a sum of int" "number 3"
values "a sum of int8" "string 3"
values "a Date of 20:00 UTC as timestamp, and as timestamptz" "object 2026-01-01T11:00:00.000Z, object 2026-01-01T20:00:00.000Z"
values "the date infinity, and another one" "number Infinity, object 2026-01-01T00:00:00.000Z"
values "an object for text" "string [object Object]"
