#!/usr/bin/env bash
# Renews tests/constraints/: the versions of Python packages that the tests run with, on each Python that tvsnap supports.
# Run it on purpose, run the tests, and commit what it wrote together with what had to be changed for it.
#
#   newest.txt      tvsnap and its development tools: the newest that pyproject.toml admits
#   oldest.txt      tvsnap alone: the oldest that pyproject.toml admits
#   harbor.txt      Harbor, beside .venv
#   train.txt       PyTorch and what else training needs, beside .venv: what pip installs here, as a build of PyTorch for
#                   the CPU needs less than one that is resolved for all machines
#   openhands.txt   OpenHands' SDK, beside .venv
#   harnesses.txt   Inspect, SWE-ReX and what mini-swe-agent imports, beside .venv
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

OLDEST_PYTHON=3.10
HARBOR_PYTHON=3.12 OPENHANDS_PYTHON=3.12 INSPECT_PYTHON=3.11 # the oldest that these run with
FOLDER=tests/constraints

# compile FILE PYTHON ARGUMENTS...: resolves for all versions of Python from PYTHON on.
compile() {
    local file=$FOLDER/$1 python=$2
    shift 2
    say "resolving $file"
    run_logged constraints "uv pip compile" "$TOOLS/bin/uv" pip compile --quiet --universal --python-version "$python" \
        --no-header --no-annotate --upgrade -o "$TOOLS/resolved.txt" "$@"
    { echo "# Written by scripts/renew_constraints.sh: do not edit."; cat "$TOOLS/resolved.txt"; } >"$file"
}

one_set_up_at_a_time
TOOLS=$(mktemp -d "${TMPDIR:-/tmp}/tvsnap-constraints.XXXXXX")
trap 'rm -rf "$TOOLS"' EXIT
say "installing uv into a temporary environment"
run_logged constraints-venv "python -m venv" .venv/bin/python -m venv "$TOOLS"
run_logged constraints-uv "pip install uv" "$TOOLS/bin/python" -m pip install --disable-pip-version-check uv
compile newest.txt "$OLDEST_PYTHON" pyproject.toml --extra dev
compile oldest.txt "$OLDEST_PYTHON" --resolution lowest-direct pyproject.toml
compile harbor.txt "$HARBOR_PYTHON" pyproject.toml "$FOLDER/harbor.in"
compile openhands.txt "$OPENHANDS_PYTHON" pyproject.toml "$FOLDER/openhands.in"
compile harnesses.txt "$INSPECT_PYTHON" pyproject.toml "$FOLDER/harnesses.in"
say "resolving $FOLDER/train.txt"
run_logged constraints-train "pip install of what training needs" "$TOOLS/bin/python" -m pip install \
    --disable-pip-version-check --ignore-installed -r "$FOLDER/train.in" -c "$FOLDER/newest.txt" "$(pwd)"
{
    echo "# Written by scripts/renew_constraints.sh: do not edit."
    "$TOOLS/bin/python" -m pip freeze --all --exclude tvsnap --exclude uv --exclude pip | sed "s|+cpu||"
} >"$FOLDER/train.txt"
