#!/usr/bin/env bash
# fast-json-patch 3.1.1: the difference of two states, and patches for what is not there
#
# Guess: other states have a difference, a patch for a missing place is an error, as RFC 6902 says.
# Behaviour: `replace` adds a missing field, `remove` of one does nothing, `copy` of one adds undefined, `add` behind a list's end appends, and `replace` there fills the gap
# with holes. Between [1] and {"0": 1}, and a missing and an undefined field there is no difference; a changed date is a character for each place.
# The document itself is changed, and shares the objects of the patch.
. "$(dirname "$0")/common.sh"
needs node npm
export HOME=$work
npm install --silent --no-audit --no-fund fast-json-patch@3.1.1 >npm.log 2>&1 || { cat npm.log >&2; exit 2; }
echo "versions: fast-json-patch@3.1.1; Node.js $(node --version)"

cat >patch.cjs <<'JS'
const { applyPatch, compare } = require('fast-json-patch')
const shown = (state, ...operations) => JSON.stringify(applyPatch(state, operations).newDocument)
console.log(shown({ a: 1 }, { op: 'replace', path: '/b', value: 2 }), shown({ a: 1 }, { op: 'remove', path: '/b' }), Object.keys(applyPatch({}, [{ op: 'copy', from: '/b', path: '/c' }]).newDocument))
console.log(shown([1], { op: 'add', path: '/3', value: 2 }), shown([1], { op: 'replace', path: '/3', value: 2 }), shown([1, 2], { op: 'remove', path: '/3' }))
console.log(compare([1], { 0: 1 }).length, compare({ a: 1 }, { a: 1, b: undefined }).length, compare({ at: new Date(0) }, { at: new Date(5) }).length)
console.log(JSON.stringify(compare({ at: new Date(0) }, { at: new Date(5) })[0]))
const state = { a: 1 }, value = { n: 1 }
applyPatch(state, [{ op: 'add', path: '/b', value }])
state.b.n = 2
console.log(JSON.stringify(state), value.n)
JS
node patch.cjs >out
seen "replace, remove and copy of a missing field" "$(sed -n 1p out)" '{"a":1,"b":2} {"a":1} [ '"'c'"' ]'
seen "index 3 of [1]: add, replace; of [1, 2]: remove" "$(sed -n 2p out)" '[1,2] [1,null,null,2] [1,2]'
seen "differences of [1] and {0: 1}, of a missing and an undefined field, of two dates" "$(sed -n 3p out)" "0 0 24"
seen "the first one of the dates" "$(sed -n 4p out)" '{"op":"add","path":"/at/0","value":"1"}'
seen "the document behind a patch, and the value that was given" "$(sed -n 5p out)" '{"a":1,"b":{"n":2}} 2'
