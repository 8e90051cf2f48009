#!/usr/bin/env bash
# pytest 9.2.0 after 8.4.2: a test of unittest of which one subtest fails, in the summary that graders read (-rA)
#
# Guess: the line of this test says FAILED, as it did.
# Behaviour: it says PASSED, and each failed subtest has a line of its own, SUBFAILED(number=1). A grader that looks
# for "PASSED name" holds it for passed. The exit code and the report of JUnit say failed.
. "$(dirname "$0")/common.sh"

cat >test_task.py <<'PYTHON'
import unittest
class TestTask(unittest.TestCase):
    def test_squares(self):
        for number in (1, 2, 3):
            with self.subTest(number=number):
                self.assertEqual(number * number, 2 * number)
PYTHON
look() {
    packages pytest=="$1"
    python -m pytest -q -rA -p no:cacheprovider --junitxml=report.xml test_task.py >log 2>&1 && status=0 || status=$?
    summary=$(sed -n '/short test summary/,$p' log | sed -E -n 's/^([A-Z]+)[^ ]* (.*::[a-z_]+).*/\1 \2/p' | sort)
    report=$(grep -o -E '<(testcase|failure)' report.xml | xargs)
}
look 8.4.2
seen "pytest 8: status, summary" "$status $summary" "1 FAILED test_task.py::TestTask::test_squares"
look 9.2.0
seen "pytest 9: status" "$status" "1"
sed -n '/short test summary/,$p' log
seen "pytest 9: summary" "$(grep -c '^PASSED test_task.py::TestTask::test_squares$' log) $(grep -c '^FAILED' log) \
$(grep -c '^SUBFAILED' log)" "1 0 2"
seen "pytest 9: report of JUnit" "$report" "<testcase <failure <failure"
