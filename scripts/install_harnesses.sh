#!/usr/bin/env bash
# Makes .venv-harnesses: mini-swe-agent, Inspect and SWE-ReX beside tvsnap in editable mode, for the tests of their plug-ins, with the
# interpreter of .venv. When nothing is missing it takes a fraction of a second.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/beside.sh

VENV=.venv-harnesses
REQUIREMENTS=tests/constraints/harnesses.txt
# Without what it depends on, most of which no test imports: see harnesses.in.
MINI_SWE_AGENT=mini-swe-agent==2.4.6

one_set_up_at_a_time
python=$(.venv/bin/python -c 'import sys; print(sys._base_executable)')
if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    say "Inspect needs Python 3.11 or newer: the tests with it, with mini-swe-agent and with SWE-ReX will be skipped"
    exit 0
fi
make_venv "$python" "Inspect, mini-swe-agent and SWE-ReX" "$MINI_SWE_AGENT"
