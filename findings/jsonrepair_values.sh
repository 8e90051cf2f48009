#!/usr/bin/env bash
# jsonrepair 3.15.0, partial-json 0.1.7: arguments of a call that a model has not ended, or not quite written as JSON
#
# Guess: what is missing is missing, or an error; numbers in forms of Python or JavaScript are numbers, as true and null are.
# Behaviour: jsonrepair makes 123, cut off, of 12345, 0 of a minus, 1 of 1e, and the text "tru". True and None are true and null, but NaN, 0x10, 1_000 and 01 are texts, and 'it's' has a
# double quote in it. partial-json gives {} without an error where a value is no JSON, and leaves out it and what stands behind it.
. "$(dirname "$0")/common.sh"
needs node npm
export HOME=$work
npm install --silent --no-audit --no-fund jsonrepair@3.15.0 partial-json@0.1.7 >npm.log 2>&1 || { cat npm.log >&2; exit 2; }
echo "versions: jsonrepair@3.15.0 partial-json@0.1.7; Node.js $(node --version)"

cat >repair.mjs <<'JS'
import { jsonrepair } from 'jsonrepair'
import { parse } from 'partial-json'
const attempt = call => { try { return JSON.stringify(call()) } catch { return 'error' } }
for (const text of ['{"n":123', '{"n":-', '{"n":1e', '{"n":tru', '{"n":True,"m":None}', '{"n":NaN}', '{"n":0x10}', '{"n":01}', "{'n':'it's'}", '{"id":7,"n":.5}', '{"a":1}{"b":2}'])
  console.log(attempt(() => JSON.parse(jsonrepair(text))), attempt(() => parse(text)))
JS
node repair.mjs >out
line=0
both() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
echo "by jsonrepair and partial-json:"
both '{"n":123' '{"n":123} {"n":123}'
both '{"n":-' '{"n":0} {}'
both '{"n":1e' '{"n":1} {"n":1}'
both '{"n":tru' '{"n":"tru"} {"n":true}'
both '{"n":True,"m":None}' '{"n":true,"m":null} {}'
both '{"n":NaN}' '{"n":"NaN"} {"n":null}'
both '{"n":0x10}' '{"n":"0x10"} {}'
both '{"n":01}' '{"n":"01"} {}'
both "{'n':'it's'}" '{"n":"it\"s"} {}'
both '{"id":7,"n":.5}' '{"id":7,"n":0.5} {"id":7}'
both '{"a":1}{"b":2}' 'error {"a":1}'
