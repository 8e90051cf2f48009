#!/usr/bin/env bash
# mini-swe-agent 2.4.6: a progress bar in the output of its local environment
#
# Guess: the output is what the command wrote, with carriage returns; or only the last state of the line.
# Behaviour: each carriage return is a line end of its own: a progress bar of a hundred steps is a hundred lines of
# observation. A file with \r\n looks like one with \n.
. "$(dirname "$0")/common.sh"
# Only what its environments import.
packages pydantic==2.12.3 platformdirs==4.5.0 python-dotenv==1.2.1 rich==14.2.0
packages_alone mini-swe-agent==2.4.6

cat >run.py <<'END'
from minisweagent.environments.local import LocalEnvironment
print(repr(LocalEnvironment().execute({"command": r"printf '10%%\r20%%\r30%%\r\n'"})["output"]))
END
MSWEA_GLOBAL_CONFIG_DIR=$work MSWEA_SILENT_STARTUP=1 python run.py 2>errors >out || { cat errors >&2; exit 2; }
seen "10%, 20%, 30% in one line" "$(tail -n 1 out)" "'10%\\n20%\\n30%\\n'"
