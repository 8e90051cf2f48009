#!/usr/bin/env bash
# Makes .venv-openhands: OpenHands' SDK, which asks for Python 3.12 or newer (here 3.12.2), and tvsnap in editable mode, for the tests of
# tvsnap.integrations.openhands. When nothing is missing it takes a fraction of a second; where there is no such Python it
# makes nothing, and those tests say so.
#
#   OPENHANDS_PYTHON=/opt/python3.13/bin/python scripts/install_openhands.sh    make it with this interpreter
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/beside.sh

VENV=.venv-openhands
REQUIREMENTS=tests/constraints/openhands.txt

one_set_up_at_a_time
# 3.12.0 and 3.12.1 start no threads at their end, which closing a cache needs.
python=$(find_python "3, 12, 2" "${OPENHANDS_PYTHON:-}")
if [ -z "$python" ]; then
    say "no Python 3.12.2 or newer: the tests with OpenHands will be skipped"
    exit 0
fi
make_venv "$python" "OpenHands' SDK"
