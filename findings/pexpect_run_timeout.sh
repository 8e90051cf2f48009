#!/usr/bin/env bash
# pexpect 4.9.0: `pexpect.run` of a command that takes longer than its timeout, which is 30 seconds if none is given
#
# Guess: TIMEOUT is raised, as by `expect`; with `withexitstatus=True` the status says that the command was ended.
# Behaviour: what was written so far is returned as if it were all; the command is ended, and its status is None. Without
# `withexitstatus` nothing tells this from a command that has ended well.
. "$(dirname "$0")/common.sh"
packages pexpect==4.9.0

cat >run.py <<'PYTHON'
import inspect, os, pexpect
print(inspect.signature(pexpect.run).parameters["timeout"].default)
print(pexpect.run("sh -c 'echo 1 passed; echo $$ >process; sleep 60; echo 1 failed'", timeout=5, withexitstatus=True))
try:
    os.kill(int(open("process").read()), 0)
except ProcessLookupError:
    print("ended")
print(pexpect.run("sh -c 'echo 1 passed'", timeout=30, withexitstatus=True))
PYTHON
python run.py >out
seen "timeout of default, in seconds" "$(sed -n 1p out)" 30
seen "output and status of a command that is too slow" "$(sed -n 2p out)" "(b'1 passed\\r\\n', None)"
seen "that command" "$(sed -n 3p out)" ended
seen "output and status of one that is not" "$(sed -n 4p out)" "(b'1 passed\\r\\n', 0)"
