#!/usr/bin/env bash
# Python 3.11.7 (of the system): the output so far of a command that `subprocess.run(text=True)` has ended for its timeout
#
# Guess: `TimeoutExpired.stdout` and `.stderr` are texts, as those of a result are, and '' where nothing was written.
# Behaviour: they are bytes, and None where nothing was written: a tool that gives them to its model in an f-string shows it
# b'...' with escapes in place of line ends, and the word None.
. "$(dirname "$0")/common.sh"
python3 --version

cat >run.py <<'PYTHON'
import subprocess
command = "echo 1 passed; echo 2 passed; "
result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
print(repr((result.stdout, result.stderr)))
try:
    subprocess.run(command + "exec sleep 30", shell=True, capture_output=True, text=True, timeout=5)
except subprocess.TimeoutExpired as error:
    print(f"{error.stdout} {error.stderr}")
PYTHON
python3 run.py >out
seen "output and errors of a command that ends" "$(sed -n 1p out)" "('1 passed\\n2 passed\\n', '')"
seen "of one that does not, in an f-string" "$(sed -n 2p out)" "b'1 passed\\n2 passed\\n' None"
