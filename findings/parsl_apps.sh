#!/usr/bin/env bash
# parsl 2026.10.26: apps with files, futures in lists, and a cache
#
# Guess: a file that is named as output is there when its future is done; futures among the arguments are waited for; a log is that of its run.
# Behaviour: the future of a file that a function has not made is done without an error; for a command it has one. A future within a
# list or a dict is given as a future; only those that are arguments, or in `inputs`, are waited for. `stdout` is appended to. With cache=True two
# functions of one text share their results, though they close over other values, so that 5 * 3 is 10, and x=1 is not 1.
. "$(dirname "$0")/common.sh"
packages parsl==2026.10.26

cat >apps.py <<'PYTHON'
import logging, os, random
import parsl
from parsl import File, bash_app, python_app
from parsl.config import Config
from parsl.executors.threads import ThreadPoolExecutor
logging.disable(logging.CRITICAL)
@bash_app
def run(command, outputs=(), stdout=None):
    return command
@python_app
def write(outputs=()):
    return "done"
@python_app
def number(x):
    return 7
@python_app
def type_of(value):
    return type(value[0]).__name__
@python_app
def types_of(inputs=()):
    return [type(value).__name__ for value in inputs]
@python_app(cache=True)
def sample(x):
    return random.random()
def times(factor):
    @python_app(cache=True)
    def product(x):
        return x * factor
    return product
with parsl.load(Config(executors=[ThreadPoolExecutor(max_threads=2)], run_dir="runs", usage_tracking=0)):
    done = write(outputs=[File("answer.txt")])
    print(done.result(), done.outputs[0].result().filepath, os.path.exists("answer.txt"))
    print(type(run("true", outputs=[File("answer.txt")]).exception()).__name__)
    print(type_of([number(1)]).result(), types_of(inputs=[number(1)]).result())
    for _ in range(2):
        run("echo a", stdout="log").result()
    print(open("log").read().split())
    print(times(2)(5).result(), times(3)(5).result())
    print(sample(1).result() == sample(1).result(), sample(1).result() == sample(x=1).result())
PYTHON
python apps.py 2>errors >out || { cat errors >&2; exit 2; }
seen "result of a function, its output file, whether it is there" "$(sed -n 1p out)" "done answer.txt False"
seen "a command without its output file" "$(sed -n 2p out)" "MissingOutputs"
seen "type of a future in a list, and in inputs" "$(sed -n 3p out)" "AppFuture ['int']"
seen "a log of two runs, of one line each" "$(sed -n 4p out)" "['a', 'a']"
seen "cached: 5 * 2 and 5 * 3" "$(sed -n 5p out)" "10 10"
seen "cached: whether 1 and 1, and 1 and x=1, have one result" "$(sed -n 6p out)" "True False"
