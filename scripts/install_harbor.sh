#!/usr/bin/env bash
# Makes .venv-harbor: Harbor, which asks for Python 3.12 or newer, and tvsnap in editable mode, for the tests of
# tvsnap.integrations.harbor. When nothing is missing it takes a fraction of a second; where there is no such Python it
# makes nothing, and those tests say so.
#
#   HARBOR_PYTHON=/opt/python3.13/bin/python scripts/install_harbor.sh    make it with this interpreter
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/beside.sh

VENV=.venv-harbor
REQUIREMENTS=tests/constraints/harbor.txt

one_set_up_at_a_time
python=$(find_python "3, 12" "${HARBOR_PYTHON:-}")
if [ -z "$python" ]; then
    say "no Python 3.12 or newer: the tests with Harbor will be skipped"
    exit 0
fi
make_venv "$python" "Harbor"
