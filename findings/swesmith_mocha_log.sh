#!/usr/bin/env bash
# swesmith 0.0.9 with swebench 4.1.0: its parser of a log of mocha 11.7.5, which Node.js 20 (of the system) has run
#
# Guess: each `it` of each `describe` has its status, by both names.
# Behaviour: the name of `describe` is left out, so that of two tests `works` the last counts: one that fails has passed. A group in which a test fails is
# itself a test that has failed, and is none if all pass, so that it can never be among those that pass after a fix. The hook `before` is a test, too.
. "$(dirname "$0")/common.sh"
needs node npm
export HOME=$work
npm install --silent --no-audit --no-fund mocha@11.7.5 >npm.log 2>&1 || { cat npm.log >&2; exit 2; }
packages_alone swesmith==0.0.9 swebench==4.1.0

cat >task.js <<'JS'
const fails = () => { throw new Error('wrong') }
describe('read', () => { it('works', fails) })
describe('write', () => { it('works', () => {}); it.skip('is fast', () => {}) })
describe('send', () => { before(fails); it('answers', () => {}) })
JS
node node_modules/mocha/bin/mocha.js task.js >log 2>&1 && status=0 || status=$?
sed -n '/^  read/,/failing/p' log
cat >parse.py <<'PYTHON'
# What the parser does not use (containers, data sets, clouds) is replaced by nothing.
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
from swesmith.profiles.javascript import parse_log_mocha
for name, status in parse_log_mocha(open("log").read()).items():
    print(name, status)
PYTHON
python parse.py 2>errors >out || { cat errors >&2; exit 2; }
seen "status of mocha" "$status" "2"
seen "tests of the log: works, of which the one of read has failed" "$(grep '^works ' out)" "works PASSED"
seen "groups" "$(grep -E '^(read|write|send) ' out | xargs)" "read FAILED send FAILED"
seen "the other ones" "$(grep -vE '^(works|read|write|send) ' out | xargs -d '\n')" 'is fast SKIPPED "before all" hook: fails for "answers" FAILED'
