#!/usr/bin/env bash
# Node.js 20.20.2 (of the system): what `node --test` counts as passed
#
# Guess: an empty file has no tests; a file whose program ends before its last test, or with another status than 0, has failed.
# Behaviour: an empty file is one test, which has passed. If the tested code calls process.exit(0) in the second of three tests,
# the first has passed, and the two others are not counted. A status other than 0 is a failure of the file; but if the file
# has also a test marked `todo` that fails, which is allowed, that failure is dropped, too: the run's status is 0.
. "$(dirname "$0")/common.sh"
needs node
node --version

run() {
    { echo "const test = require('node:test')"; cat; } >task.test.js
    node --test --test-reporter=tap task.test.js >log 2>&1 && status=0 || status=$?
    echo "$status $(sed -n 's/^# \(pass\|fail\|todo\) /\1 /p' log | xargs)"
}
good="test('good', () => {})"
todo="test('later', { todo: true }, () => { throw new Error('not yet') })"
seen "no test: status, counts" "$(run </dev/null)" "0 pass 1 fail 0 todo 0"
seen "the second of three ends the program" "$(run <<<"$good
test('ends', async () => { await 0; process.exit(0) })
test('bad', () => { throw new Error('wrong') })")" "0 pass 1 fail 0 todo 0"
seen "status 3 of the file" "$(run <<<"$good; process.exitCode = 3")" "1 pass 1 fail 1 todo 0"
seen "with a test that is still to do" "$(run <<<"$good; $todo; process.exitCode = 3")" "0 pass 1 fail 0 todo 1"
seen "an error after all tests" "$(run <<<"$good; setTimeout(() => { throw new Error('wrong') }, 50)")" "1 pass 1 fail 1 todo 0"
seen "with a test that is still to do" "$(run <<<"$good; $todo; setTimeout(() => { throw new Error('wrong') }, 50)")" \
    "0 pass 1 fail 0 todo 1"
