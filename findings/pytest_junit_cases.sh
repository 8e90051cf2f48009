#!/usr/bin/env bash
# pytest 9.2.0, junitparser 5.0.3: results of tests as XML, from which a reward counts those that have passed
#
# Guess: a case for each test, with what pytest says of it; the number of cases is that of the tests.
# Behaviour: a test that fails, and whose fixture then fails, is two cases of one name, so that of a dict the last one counts; one that was
# meant to fail and passes is a plain pass, and one that fails as it was meant to is skipped. Subtests: ...
. "$(dirname "$0")/common.sh"
packages pytest==9.2.0 junitparser==5.0.3

cat >test_task.py <<'PYTHON'
import pytest, unittest
@pytest.fixture
def bad():
    yield
    raise RuntimeError("teardown")
def test_both(bad): assert 0
def test_pass_then_error(bad): pass
@pytest.mark.xfail
def test_xpass(): pass
@pytest.mark.xfail
def test_xfail(): assert 0
class TestU(unittest.TestCase):
    def test_sub(self):
        for i in range(3):
            with self.subTest(i=i): self.assertNotEqual(i,1)
def test_subs(subtests):
    for i in range(3):
        with subtests.test(i=i): assert i != 1
@pytest.mark.parametrize("x",["a.b","a b","a/b", "\x1b", "é"])
def test_p(x): pass
PYTHON
python -m pytest -q -p no:cacheprovider --junitxml=r.xml -k "" --continue-on-collection-errors >log || true
sed 's/></>\n</g' r.xml | grep -v "^E\|^ " | cut -c1-200
cat >j.py <<'PYTHON'
from junitparser import JUnitXml
for s in JUnitXml.fromfile("r.xml"):
    for c in s: print(c.classname, c.name, c.is_passed)
    print(s.tests,s.failures,s.errors,s.skipped)
PYTHON
python j.py
