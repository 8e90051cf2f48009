#!/usr/bin/env bash
# ray 2.60.0: tasks, one behind the other
#
# Guess: each task begins as the others did; `sys.exit(0)` ends a task as it ends a program; a changed module is what the next task sees.
# Behaviour: a worker runs one task after the other, so that the next one has the last one's folder, variables of the environment and numbers of
# `random`. A task that ends with `sys.exit(0)` counts as a lost worker: it is run four times, with all it does to files, and then is an error, while
# one that raises is run once. A module's value that is changed behind the first call is not seen by later ones, as the function was sent with the old one.
. "$(dirname "$0")/common.sh"
packages ray==2.60.0

cat >tasks.py <<'PYTHON'
import os, random, sys
import ray
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
@ray.remote
def first():
    os.environ["TASK"] = "7"
    os.mkdir("inside")
    os.chdir("inside")
    random.seed(7)
@ray.remote
def second():
    return os.environ.get("TASK"), os.path.basename(os.getcwd()), random.random() == random.Random(7).random()
ray.get(first.remote())
print(ray.get(second.remote()))
@ray.remote
def ends(log, how):
    with open(log, "a") as file:
        file.write("run\n")
    how()
def leaves():
    sys.exit(0)
def raises():
    raise ValueError("wrong")
for how in (leaves, raises):
    log = os.path.abspath(how.__name__)
    try:
        ray.get(ends.remote(log, how))
        state = "done"
    except Exception as error:
        state = type(error).__name__
    print(state, len(open(log).readlines()))
limit = 1
@ray.remote
def limited():
    return limit
print(ray.get(limited.remote()), end=" ")
limit = 2
print(ray.get(limited.remote()))
PYTHON
export RAY_TMPDIR=$work RAY_USAGE_STATS_ENABLED=0
python tasks.py 2>errors >out || { cat errors >&2; exit 2; }
sed -n '/raylet/!p' -i out
seen "the second task: the first one's variable, its folder, whether numbers are of its seed" "$(sed -n 1p out)" "('7', 'inside', True)"
seen "a task that ends with sys.exit(0), and how often it was run" "$(sed -n 2p out)" "WorkerCrashedError 4"
seen "a task that raises" "$(sed -n 3p out)" "RayTaskError(ValueError) 1"
seen "a module's value, and changed from 1 to 2" "$(sed -n 4p out)" "1 1"
