#!/usr/bin/env bash
# Makes .venv-harnesses: mini-swe-agent and Inspect beside tvsnap in editable mode, for the tests of their plug-ins, with the
# interpreter of .venv. When nothing is missing it takes a fraction of a second.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/beside.sh

VENV=.venv-harnesses
INSPECT=inspect_ai==0.3.285
MINI_SWE_AGENT=mini-swe-agent==2.4.6
# What mini-swe-agent's loop and its scripted model import. What speaks to models and fetches data sets (litellm, datasets),
# which no test does, would add 500 MB.
MINI_SWE_AGENT_IMPORTS=(jinja2 platformdirs pydantic python-dotenv rich typer)

install_harnesses() {
    pip_install "$INSPECT" "${MINI_SWE_AGENT_IMPORTS[@]}" pytest pytest-asyncio &&
        pip_install --no-deps "$MINI_SWE_AGENT"
}

one_set_up_at_a_time
python=$(.venv/bin/python -c 'import sys; print(sys._base_executable)')
make_venv "$python" install_harnesses "$MINI_SWE_AGENT and $INSPECT"
