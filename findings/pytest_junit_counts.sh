#!/usr/bin/env bash
# pytest 9.2.0, junitparser 5.0.3: a reward counted from the XML of `--junitxml`
#
# Guess: a case for each test, `tests` is the number of cases, and without failures, errors and skipped ones it is that of the passed.
# Behaviour: each subtest that passes is counted in `tests`, and has no case; a test with one that fails has one failure or two. A test that
# fails, and whose fixture fails then, is two cases of one name. Of four tests, of which three fail, 8 are left as passed. What
# passes though it is marked with xfail is a plain pass.
. "$(dirname "$0")/common.sh"
packages pytest==9.2.0 junitparser==5.0.3

cat >test_task.py <<'PYTHON'
import unittest
import pytest
@pytest.fixture
def server():
    yield
    raise RuntimeError
def test_both(server): assert False
class TestRows(unittest.TestCase):
    def test_rows(self):
        for number in range(3):
            with self.subTest(number=number):
                assert number != 1
def test_columns(subtests):
    for number in range(5):
        with subtests.test(number=number):
            assert number != 1
@pytest.mark.xfail
def test_passes(): pass
PYTHON
cat >count.py <<'PYTHON'
from junitparser import JUnitXml
for suite in JUnitXml.fromfile("results.xml"):
    print(suite.tests, suite.failures, suite.errors, suite.skipped, suite.tests - suite.failures - suite.errors - suite.skipped)
    for case in suite:
        print(case.name, *(type(result).__name__ for result in case.result), case.is_passed)
PYTHON
python -m pytest -q -p no:cacheprovider --junitxml=results.xml test_task.py >log || true
tail -n 1 log | sed 's/ in .*//' >summary
python count.py >out
seen "pytest's last line" "$(cat summary)" "4 failed, 1 passed, 1 xpassed, 1 error, 6 subtests passed"
seen "tests, failures, errors, skipped, and what is left" "$(sed -n 1p out)" "13 4 1 0 8"
seen "a test that fails, with its fixture" "$(sed -n 2,3p out | xargs)" "test_both Failure False test_both Error False"
seen "one of three subtests fails, with unittest" "$(sed -n 4p out)" "test_rows Failure False"
seen "one of five, with the fixture subtests" "$(sed -n 5p out)" "test_columns Failure Failure False"
seen "marked with xfail" "$(sed -n 6p out)" "test_passes True"
