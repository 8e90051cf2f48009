#!/usr/bin/env bash
# Python 3.11.7 (of the system): a module that is changed within the second of its last change, to a text of the same length
#
# Guess: the change is seen, as times of files have nanoseconds and the two differ by most of a second.
# Behaviour: the compiled file holds whole seconds and the length, and both are as before: the tests run the old module, until
# the source changes again. With PYTHONDONTWRITEBYTECODE, or by compiled files that are checked by hash, the change is seen.
. "$(dirname "$0")/common.sh"
python3 --version
unset PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX

write() { # write WHAT PART: the times are set, so that nothing depends on how fast this machine is
    echo "def answer(): return $1" >solution.py
    touch -d "2026-01-01 00:00:00.$2" solution.py
}
cat >test_solution.py <<'PYTHON'
import unittest, solution
class Test(unittest.TestCase):
    def test_answer(self):
        self.assertEqual(solution.answer(), 42)
PYTHON
result() { python3 -m unittest -q test_solution 2>&1 | tail -n 1; }
write 41 1
seen "wrong module" "$(result)" "FAILED (failures=1)"
write 42 9
seen "right module, changed 0.8 seconds later" "$(result)" "FAILED (failures=1)"
seen "without compiled files" "$(rm -r __pycache__; PYTHONDONTWRITEBYTECODE=1 result)" OK
write 41 1
python3 -m compileall -q --invalidation-mode checked-hash solution.py
seen "wrong module, checked by hash" "$(result)" "FAILED (failures=1)"
write 42 9
seen "right module, checked by hash" "$(result)" OK
