#!/usr/bin/env bash
# hypothesis 6.170.17 with pytest 9.2.0: the same tests in a sandbox with and without the variable CI
#
# Guess: a variable that the tests do not read changes nothing.
# Behaviour: where CI is set, also to 0 or to nothing, tests have no deadline, so that a slow one passes that fails without it; each run
# tries the same values, so that more runs find no more; and failing values are not kept. Without it they are kept in the
# folder `.hypothesis`, and a rollout that begins with that folder tries them first.
. "$(dirname "$0")/common.sh"
packages hypothesis==6.170.17 pytest==9.2.0

cat >test_task.py <<'PYTHON'
import os, time
from hypothesis import given, strategies
@given(strategies.integers(0, 3))
def test_slow(number):
    time.sleep(0.3)
@given(strategies.integers(0, 10**9))
def test_values(number):
    with open("values", "a") as file:
        file.write(f"{number} ")
@given(strategies.integers(0, 10**9))
def test_fails(number):
    with open("tried", "a") as file:
        file.write(f"{number} ")
    assert number < 1000 or "PASS" in os.environ
PYTHON
run() { # run VARIABLE...: the tests that have passed
    rm -f values tried
    env -i PATH="$PATH" HOME="$work" "$@" venv/bin/python -m pytest -q -rp -p no:cacheprovider test_task.py >log 2>&1 || true
    sed -n 's/^PASSED test_task.py:://p' log | sort | xargs
}
kept() { if [ -d .hypothesis/examples ]; then echo kept; else echo "not kept"; fi; }
seen "passed with CI=true" "$(run CI=true)" "test_slow test_values"
cp values first
seen "values of failures" "$(kept)" "not kept"
seen "passed with CI=0" "$(run CI=0)" "test_slow test_values"
seen "other values in the second run" "$(cmp -s first values || echo yes)" ""
seen "passed without CI" "$(run)" "test_values"
cp values first
seen "values of failures" "$(kept)" "kept"
seen "passed in a second run without CI, where the code is right" "$(run PASS=1)" "test_fails test_values"
seen "other values in the second run" "$(cmp -s first values || echo yes)" "yes"
seen "the value tried first" "$(cut -d ' ' -f 1 tried)" "1000"
