#!/usr/bin/env bash
# tar 7.5.23, of npm: a folder as an archive and out of it, beside GNU tar
#
# Guess: as by GNU tar for root, or an error.
# Behaviour: a link to /opt/data becomes one to opt/data, a link to ../.. is missing, without a word; 666 is 644, 555 is 755, and fractions of seconds are cut off.
. "$(dirname "$0")/common.sh"
needs node npm
export HOME=$work
npm install --silent --no-audit --no-fund tar@7.5.23 >npm.log 2>&1 || { cat npm.log >&2; exit 2; }
echo "versions: tar@7.5.23; Node.js $(node --version)"

mkdir -p task/closed out
echo one >task/a
ln -s /opt/data task/data
ln -s ../.. task/up
chmod 666 task/a
touch -d @1000000000.5 task/a
chmod 555 task/closed
cat >pack.mjs <<'JS'
import * as tar from 'tar'
tar.c({ file: 'task.tar', sync: true }, ['task'])
tar.x({ file: 'task.tar', cwd: 'out', sync: true })
JS
umask 022
node pack.mjs >errors 2>&1
shown() { (cd "$1" && echo * && stat -c '%a %.1Y' a && stat -c '%a' closed && readlink data) | paste -sd' '; }
seen "the folder" "$(shown task)" "a closed data up 666 1000000000.5 555 /opt/data"
seen "out of the archive" "$(shown out/task)" "a closed data 644 1000000000.0 755 opt/data"
seen "words" "$(wc -c <errors)" "0"
chmod 755 task/closed
