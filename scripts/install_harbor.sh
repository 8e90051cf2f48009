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

good() { "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; }

# Prints the first interpreter that is new enough: the one asked for, .venv's own, or one that lies where they usually do.
find_python() {
    local python
    for python in "${HARBOR_PYTHON:-}" .venv/bin/python python3.12 python3.13 python3.14 python3 \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9].*/bin/python; do
        if [ -n "$python" ] && good "$python"; then
            "$python" -c 'import sys; print(sys._base_executable)'
            return
        fi
    done
}

one_set_up_at_a_time
python=$(find_python)
if [ -z "$python" ]; then
    say "no Python 3.12 or newer: the tests with Harbor will be skipped"
    exit 0
fi
make_venv "$python" "Harbor"
