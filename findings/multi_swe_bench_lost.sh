#!/usr/bin/env bash
# multi-swe-bench 1.1.2: its report of a task, from the tests before, with the task's tests, and with the fix
#
# Guess: a test that passed before and is missing or skipped with the fix is a regression, as one that fails is; a test is fixed if it is run and fails
# before.
# Behaviour: a missing and a skipped one are none, and the report is valid; only a failing one makes it invalid. If nothing is run with the task's tests,
# as they do not compile, all tests that pass with the fix are fixed ones, also those that passed before.
. "$(dirname "$0")/common.sh"
packages dataclasses-json==0.6.7 unidiff==1.0.1
packages_alone multi-swe-bench==1.1.2

cat >report.py <<'PYTHON'
# What the report does not use (containers, repositories) is replaced by nothing.
import importlib.abc, importlib.machinery, sys, unittest.mock
class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("docker", "git", "github", "tqdm", "toml", "yaml", "swerex"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        return unittest.mock.MagicMock(__path__=[], __spec__=spec, __name__=spec.name)
    def exec_module(self, module):
        pass
sys.meta_path.append(Absent())
from multi_swe_bench.harness.report import Report
from multi_swe_bench.harness.test_result import TestResult
def result(passed="", failed="", skipped=""):
    return TestResult(*map(len, (passed, failed, skipped)), *map(set, (passed, failed, skipped)))
def report(tests, fix):
    made = Report(org="o", repo="r", number=1, run_result=result("ac"), test_patch_result=tests, fix_patch_result=fix)
    print(made.valid, "".join(sorted(made.fixed_tests)))
for fix in (result("abc"), result("ab", "c"), result("ab"), result("ab", skipped="c")):
    report(result("ac", "b"), fix)
report(result(), result("abc"))
PYTHON
python report.py 2>errors >out || { cat errors >&2; exit 2; }
echo "before, a and c pass; with the task's tests, b fails: whether it is valid, and what is fixed"
seen "with the fix, all pass" "$(sed -n 1p out)" "True b"
seen "c fails" "$(sed -n 2p out)" "False "
seen "c is missing" "$(sed -n 3p out)" "True b"
seen "c is skipped" "$(sed -n 4p out)" "True b"
seen "with the task's tests, nothing is run; with the fix, all pass" "$(sed -n 5p out)" "True abc"
