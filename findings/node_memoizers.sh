#!/usr/bin/env bash
# fast-memoize 2.5.2, p-memoize 8.0.0, lru-cache 11.5.3: caches of calls
#
# Guess: all arguments are the key, by value; what is set is there, and ttl 0 keeps nothing.
# Behaviour: fast-memoize leaves out a second argument that has a default, for the key and for the call; maps with other contents are one, and so are null and NaN. For p-memoize the first argument is the
# key, and a list by identity, so that equal lists never hit. lru-cache: undefined deletes, a value too large deletes the one before it, ttl 0 keeps for ever.
. "$(dirname "$0")/common.sh"
needs node npm
export HOME=$work
npm install --silent --no-audit --no-fund fast-memoize@2.5.2 p-memoize@8.0.0 lru-cache@11.5.3 >npm.log 2>&1 || { cat npm.log >&2; exit 2; }
echo "versions: fast-memoize@2.5.2 p-memoize@8.0.0 lru-cache@11.5.3; Node.js $(node --version)"

cat >caches.mjs <<'JS'
import memoize from 'fast-memoize'
import pMemoize from 'p-memoize'
import { LRUCache } from 'lru-cache'
let n = 0
const search = memoize((query, limit = 5) => `${query} ${limit}`)
console.log(search('a', 2), '|', search('a', 3))
const count = memoize(value => ++n)
console.log(count(new Map([['a', 1]])), count(new Map([['b', 2]])), count({ run: null }), count({ run: NaN }))
const get = pMemoize(async (...all) => JSON.stringify(all))
console.log(await get('a', 1), await get('a', 2))
let runs = 0
const list = pMemoize(async names => ++runs)
console.log(await list(['a']), await list(['a']))
const cache = new LRUCache({ maxSize: 10, sizeCalculation: text => text.length })
cache.set('a', 'short').set('a', 'longer than ten').set('b', 'text').set('b', undefined)
console.log(cache.get('a'), cache.has('b'))
const short = new LRUCache({ max: 10, ttl: 0 })
short.set('a', 1)
await new Promise(done => setTimeout(done, 50))
console.log(short.get('a'))
JS
node caches.mjs >out
seen "fast-memoize: (a, 2) and (a, 3) of a function with a default" "$(sed -n 1p out)" "a 5 | a 5"
seen "results for two maps, {run: null} and {run: NaN}" "$(sed -n 2p out)" "1 1 2 2"
seen "p-memoize: (a, 1) and (a, 2)" "$(sed -n 3p out)" '["a",1] ["a",1]'
seen "runs for two equal lists" "$(sed -n 4p out)" "1 2"
seen "lru-cache: a behind a value too large, whether b is there behind undefined" "$(sed -n 5p out)" "undefined false"
seen "with ttl 0, 50 ms later" "$(sed -n 6p out)" "1"
