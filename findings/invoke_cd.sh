#!/usr/bin/env bash
# invoke 3.0.3: the folder, the prefix and the time limit of a command
#
# Guess: within `cd` of a folder that is not there nothing is run; a prefix that fails ends the command; a time limit ends what the command has started.
# Behaviour: `cd missing && ` stands before the text, so that of "echo a; pwd", and of two lines, the rest is run in the folder of the process, with status 0;
# so is all behind the first ; if a prefix fails, and behind the prefix "true || false" nothing has to hold. At the time limit only the shell is killed:
# `run` goes on waiting for the output of its children, so that a limit of 0.3 seconds is one of 2, and what they do is done. A disowned command is not `ok`.
. "$(dirname "$0")/common.sh"
packages invoke==3.0.3

cat >commands.py <<'PYTHON'
import os
import time
from invoke import CommandTimedOut, Context
context = Context()
quiet = {"hide": True, "in_stream": False}
for command in ("echo a; basename $PWD", "echo a\nbasename $PWD", "echo a && basename $PWD"):
    with context.cd("missing"):
        done = context.run(command, warn=True, **quiet)
    print(repr(done.stdout), done.exited)
for command in ("echo a; echo b", "echo a && echo b"):
    with context.prefix("false"):
        done = context.run(command, warn=True, **quiet)
    print(repr(done.stdout), done.exited)
began = time.monotonic()
try:
    context.run("(sleep 2; touch late) & wait", timeout=0.3, **quiet)
except CommandTimedOut as error:
    print(error.timeout, time.monotonic() - began > 1.8, os.path.exists("late"))
done = context.run("true", disown=True)
print(done.exited, done.ok)
PYTHON
mkdir task && cd task
python ../commands.py >../out
cd ..
seen "cd missing: echo a; basename \$PWD" "$(sed -n 1p out)" "'task\\n' 0"
seen "cd missing: the same in two lines" "$(sed -n 2p out)" "'task\\n' 0"
seen "cd missing: the same with &&" "$(sed -n 3p out)" "'' 1"
seen "prefix false: echo a; echo b" "$(sed -n 4p out)" "'b\\n' 0"
seen "prefix false: echo a && echo b" "$(sed -n 5p out)" "'' 1"
seen "limit of a command with a child, whether it took 2 seconds, whether the child has written" "$(sed -n 6p out)" "0.3 True True"
seen "a disowned command: status, ok" "$(sed -n 7p out)" "None False"
