#!/usr/bin/env bash
# setsid of util-linux 2.38.1: a command in a session of its own, started by a harness that makes a session as well
#
# Guess: setsid runs the command, waits for it, and has its status, as from a script.
# Behaviour: if the process is the first of its group, as with `start_new_session=True`, setsid forks and ends with 0 at once: the status is
# lost, and the command still runs. In a script, where it is not the first, it becomes the command. `--wait` makes both alike.
. "$(dirname "$0")/common.sh"
needs setsid
setsid --version

cat >run.py <<'PYTHON'
import os
import subprocess
def run(*options, **given):
    if os.path.exists("done"):
        os.remove("done")
    status = subprocess.run(["setsid", *options, "sh", "-c", "sleep 1; touch done; exit 3"], **given).returncode
    print(status, os.path.exists("done"))
run()
run(start_new_session=True)
os.system("sleep 2")
run("--wait", start_new_session=True)
PYTHON
"${FINDINGS_PYTHON:-python3}" run.py >out
seen "status, and has the command ended" "$(sed -n 1p out)" "3 True"
seen "with start_new_session=True" "$(sed -n 2p out)" "0 False"
seen "and with --wait" "$(sed -n 3p out)" "3 True"
