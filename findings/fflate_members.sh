#!/usr/bin/env bash
# fflate 0.8.3, pako 3.0.3 and Node.js 20.20.2: a gzip file of two parts, as an appended log has them, in JavaScript
#
# Guess: all parts, as by gzip and `gunzipSync` of Node.js, or the first one; a damaged text is an error.
# Behaviour: `gunzipSync` of fflate has the first part, cut off at the length of the last one, so that "a longer text" and "x" are "a"; zeros behind the
# part make it empty. Its stream has all parts, and raises at zeros. It does not look at the checksum. pako does all as Node.js does.
. "$(dirname "$0")/common.sh"
needs node npm
export HOME=$work
npm install --silent --no-audit --no-fund fflate@0.8.3 pako@3.0.3 >npm.log 2>&1 || { cat npm.log >&2; exit 2; }
echo "versions: fflate@0.8.3 pako@3.0.3; Node.js $(node --version)"

cat >parts.mjs <<'JS'
import zlib from 'zlib'
import * as fflate from 'fflate'
import * as pako from 'pako'
const streamed = bytes => { let text = ''; const stream = new fflate.Gunzip(part => { text += Buffer.from(part) }); stream.push(bytes, true); return text }
const all = bytes => console.log(...[zlib.gunzipSync, pako.ungzip, fflate.gunzipSync, streamed].map(read => {
  try { return JSON.stringify(Buffer.from(read(bytes)).toString()) } catch { return 'error' }
}))
const [long, short] = ['a longer text', 'x'].map(text => zlib.gzipSync(text))
all(Buffer.concat([long, short]))
all(Buffer.concat([short, long]))
all(Buffer.concat([long, Buffer.alloc(16)]))
const damaged = Buffer.from(long)
damaged[damaged.length - 8] ^= 1
all(damaged)
JS
node parts.mjs >out
line=0
texts() { line=$((line + 1)); seen "$1: zlib of Node.js, pako, gunzipSync of fflate, its stream" "$(sed -n ${line}p out)" "$2"; }
texts "a long part, a short one" '"a longer textx" "a longer textx" "a" "a longer textx"'
texts "a short part, a long one" '"xa longer text" "xa longer text" "x" "xa longer text"'
texts "a part, zeros" '"a longer text" "a longer text" "" error'
texts "a wrong checksum" 'error error "a longer text" "a longer text"'
