#!/usr/bin/env bash
# SWE-bench 5.0.2: its parser of pytest's logs and its grading, with a log of pytest 9.0.1 (-rA)
#
# Guess: each line of the summary is one test; a skipped test is no regression, as the grading says; an expected failure
# that passes has passed.
# Behaviour: a name ends at its first space, so that parameters with a space share one entry, and the failure of one is that
# of all. The line of a skipped test has no name, and XPASS is not known: both are missing, and count as failed.
. "$(dirname "$0")/common.sh"
packages pytest==9.0.1
packages_alone swebench==5.0.2

cat >test_task.py <<'PYTHON'
import pytest
@pytest.mark.parametrize("line", ["a b", "a c"])
def test_line(line):
    assert line != "a b"
@pytest.mark.skip(reason="not here")
def test_skipped():
    pass
@pytest.mark.xfail
def test_expected():
    pass
PYTHON
cat >grade.py <<'PYTHON'
# What the parser and the grading do not use (data sets, containers, clouds) is replaced by nothing.
import importlib.abc, importlib.machinery, sys, unittest.mock
class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    names = "bs4 chardet datasets docker dotenv fastcore ghapi git modal requests rich tenacity tqdm typer unidiff yaml".split()
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        return unittest.mock.MagicMock(__path__=[], __spec__=spec, __name__=spec.name)
    def exec_module(self, module):
        pass
sys.meta_path.insert(0, Absent())
from swebench.harness.grading import test_maintained, test_passed
from swebench.harness.log_parsers.python import parse_log_pytest
statuses = parse_log_pytest(open("log").read(), None)
print(statuses)
for name in ("test_line[a c]", "test_skipped", "test_expected"):
    print(test_passed(f"test_task.py::{name}", statuses), test_maintained(f"test_task.py::{name}", statuses))
PYTHON
python -m pytest -q -rA -p no:cacheprovider test_task.py >log || true
sed -n '/short test summary/,$p' log
python grade.py 2>errors >out || { cat errors >&2; exit 2; }
seen "tests that it has found" "$(sed -n 1p out)" "{'test_task.py::test_line[a': 'FAILED'}"
seen "passed and maintained: the parameter that passes" "$(sed -n 2p out)" "False False"
seen "passed and maintained: the skipped one" "$(sed -n 3p out)" "False False"
seen "passed and maintained: the expected failure that passes" "$(sed -n 4p out)" "False False"
