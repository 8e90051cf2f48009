#!/usr/bin/env bash
# pytest 9.2.0: one test that is left out by `--deselect`, and tests that are chosen by `-k`
#
# Guess: that test is left out, or an error if there is none of this name; `-k` looks at the names of functions.
# Behaviour: all tests are left out whose path begins with it, so that with `test_add` go `test_add_many` and each case of `test_address`,
# with status 0. A path with ./ or from the root of the file system, and a misspelt one, leave out nothing, and nothing is said. `-k add`
# takes all tests of a folder `add` or a file with these letters, and of marks and classes, in any case.
. "$(dirname "$0")/common.sh"
packages pytest==9.2.0

mkdir add
cat >test_task.py <<'PYTHON'
import pytest
def test_add(): pass
def test_add_many(): pass
@pytest.mark.parametrize("kind", ["a", "b"])
def test_address(kind): pass
class TestAdd:
    def test_first(self): pass
def test_other(): pass
PYTHON
echo 'def test_sum(): pass' >add/test_numbers.py
chosen() { (cd "$work" && python -m pytest -q -p no:cacheprovider --collect-only "$@" | sed -n 's/.*:://p' | xargs); }
seen "all" "$(chosen test_task.py)" "test_add test_add_many test_address[a] test_address[b] test_first test_other"
seen "without test_task.py::test_add" "$(chosen --deselect test_task.py::test_add test_task.py)" "test_first test_other"
for path in ./test_task.py::test_add "$work/test_task.py::test_add" test_task.py::test_ad_d; do
    seen "without ${path/"$work"/\$PWD}" "$(chosen --deselect "$path" test_task.py | wc -w)" 6
done
seen "-k add" "$(chosen -k add)" "test_sum test_add test_add_many test_address[a] test_address[b] test_first"
