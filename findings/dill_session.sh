#!/usr/bin/env bash
# dill 0.4.1: `dump_module` of a session, and `load_module` in a new process
#
# Guess: variables and functions come back, modules are imported anew, files are as they were, or an error; what cannot be kept is an error at the dump.
# Behaviour: loading empties a file that was open for writing, and one that was open for reading is read from its start again. A module of the
# task has its changed variables again, `random` has another state, and NaN is no longer found in its list. A class of `enum` is a warning
# at the dump, which then cannot be loaded at all.
. "$(dirname "$0")/common.sh"
packages dill==0.4.1

echo "state = 0" >task_state.py
printf 'abcdef' >read.txt
cat >save.py <<'PYTHON'
import dill, random, task_state
task_state.state = 2
random.seed(1)
twin = random.Random()
twin.setstate(random.getstate())
reading = open("read.txt")
reading.read(3)
writing = open("written.txt", "w")
writing.write("results so far")
writing.flush()
missing = float("nan")
rewards = [missing]
dill.dump_module("session")
PYTHON
cat >load.py <<'PYTHON'
import dill
dill.load_module("session")
print(repr(open("written.txt").read()), reading.read(), task_state.state, random.random() == twin.random(), missing in rewards)
PYTHON
cat >save_class.py <<'PYTHON'
import dill, enum
class Outcome(enum.Enum):
    passed = 1
answer = 42
dill.dump_module("session")
PYTHON
python save.py
seen "the file before" "$(cat written.txt)" "results so far"
python load.py >out
seen "the file, what is read on, the module's variable, the same random numbers, NaN in its list" "$(cat out)" "'' abcdef 2 False False"
status=0; python save_class.py 2>warnings || status=$?
seen "the dump with a class of enum: status, warning" "$status $(grep -o 'PicklingWarning: Cannot pickle' warnings)" "0 PicklingWarning: Cannot pickle"
status=0; python load.py 2>errors >out || status=$?
seen "loaded: status" "$status $(tail -n 1 errors | cut -d: -f1-2)" "1 AttributeError: Can't get attribute 'Outcome' on <module '__main__' from '$work/load.py'>"
