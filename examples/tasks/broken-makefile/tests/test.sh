#!/bin/bash
# Puts the Makefile to use in copies of the project. What make does is told by what it says that it runs.
set -euo pipefail
mkdir -p /logs/verifier
echo 0 >/logs/verifier/reward.txt

fail() {
    echo "FAIL: $*"
    exit 0
}

[ -f /app/Makefile ] || fail "there is no Makefile"
(cd /app && sha256sum --quiet --check /tests/sources.sha256) || fail "a source file is not as it was"

copy=$(mktemp -d)
cp -a /app/src /app/test /app/Makefile "$copy"
cd "$copy"
files() { find . -type f | sort; }
before=$(files)

make -j4 || fail "make -j4"
[ "$(echo 1 3 | ./summary)" = "mean 2.00, deviation 1.00" ] || fail "the program that make builds"
make --question || fail "a second make has something to do"

make test || fail "make test"
[ "$(make test | grep -c '^ok')" = 3 ] || fail "make test runs the tests only once"
cp summary kept
printf '#!/bin/sh\necho nothing\n' >summary
if make --silent test >/dev/null 2>&1; then fail "make test with a wrong program"; fi
mv kept summary

touch src/moments.c
again=$(make)
grep -q 'moments\.c' <<<"$again" || fail "a change in moments.c"
if grep -q 'main\.c' <<<"$again"; then fail "a change in moments.c builds main.o too"; fi
sed -i 's/DIGITS 2/DIGITS 4/' src/moments.h
make
[ "$(echo 1 3 | ./summary)" = "mean 2.0000, deviation 1.0000" ] || fail "a change in moments.h"

touch kept.txt
make clean || fail "make clean"
[ "$(files)" = "$(printf '%s\n' "$before" ./kept.txt | sort)" ] || fail "make clean leaves: $(files)"
touch clean && make && make clean && [ ! -e summary ] || fail "make clean beside a file of that name"

echo 1 >/logs/verifier/reward.txt
