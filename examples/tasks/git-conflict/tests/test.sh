#!/bin/bash
# Looks at the history and the state of the repository, and tests what was committed, not what lies about.
set -euo pipefail
mkdir -p /logs/verifier
echo 0 >/logs/verifier/reward.txt

fail() {
    echo "FAIL: $*"
    exit 0
}

cd /app/shop
[ "$(git symbolic-ref --short HEAD)" = main ] || fail "main is not checked out"
[ -z "$(git status --porcelain)" ] || fail "something is uncommitted"
[ ! -e .git/MERGE_HEAD ] || fail "the merge is under way"

# The commits that were there, by their names, as parents: neither rewritten nor left out.
[ "$(git rev-parse HEAD^@)" = "$(cat /tests/parents)" ] || fail "the parents are not the former main and discounts"

copy=$(mktemp -d)
git archive HEAD | tar -x -C "$copy"
cd "$copy"
if grep -rnE '^(<<<<<<<|=======|>>>>>>>)' .; then fail "conflict markers"; fi
timeout 10 python3 test_prices.py || fail "the tests of the repository"
for test in test_sum test_tax test_rounded_down test_all_of_it test_half_is_less; do
    grep -q "def $test(" test_prices.py || fail "$test is gone"
done
PYTHONPATH=$copy timeout 10 python3 /tests/test_both.py || fail "the two changes together"

echo 1 >/logs/verifier/reward.txt
