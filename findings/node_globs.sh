#!/usr/bin/env bash
# minimatch 11.0.9, picomatch 4.0.7, ignore 7.0.17: patterns of files, by the libraries of most JavaScript tools
#
# Guess: the first two agree, with each other and on the name itself; `ignore` follows git.
# Behaviour: [!a].js is all but a.js for minimatch, and ! or a for picomatch. A file [id].js fits its own name for picomatch alone, src/** has src itself for it alone, and
# so have **.js files of subfolders, ./a.js the file a.js, and (a|b).js a.js. A pattern "#a" is a comment for minimatch. For `ignore` README leaves out readme, too, unlike git on Linux.
. "$(dirname "$0")/common.sh"
needs node npm
export HOME=$work
npm install --silent --no-audit --no-fund minimatch@11.0.9 picomatch@4.0.7 ignore@7.0.17 >npm.log 2>&1 || { cat npm.log >&2; exit 2; }
echo "versions: minimatch@11.0.9 picomatch@4.0.7 ignore@7.0.17; Node.js $(node --version)"

cat >globs.mjs <<'JS'
import { minimatch } from 'minimatch'
import picomatch from 'picomatch'
const cases = [['[!a].js', 'b.js'], ['[!a].js', 'a.js'], ['[id].js', '[id].js'], ['src/**', 'src'], ['**.js', 'src/a.js'], ['./a.js', 'a.js'], ['(a|b).js', 'a.js'], ['#a', '#a']]
for (const [pattern, name] of cases) console.log(pattern, name, minimatch(name, pattern), picomatch(pattern)(name))
JS
node globs.mjs >out
echo "pattern and name, by minimatch and picomatch:"
line=0
fits() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$1 $2"; }
fits "[!a].js b.js" "true false"
fits "[!a].js a.js" "false true"
fits "[id].js [id].js" "false true"
fits "src/** src" "false true"
fits "**.js src/a.js" "false true"
fits "./a.js a.js" "false true"
fits "(a|b).js a.js" "false true"
fits "#a #a" "false true"
seen "ignore: readme and README.md for README, readme for it with ignorecase off" \
    "$(node -p "const i = require('ignore'); [i().add('README').ignores('readme'), i().add('README').ignores('README.md'), i({ignorecase: false}).add('README').ignores('readme')].join(' ')")" "true false false"
