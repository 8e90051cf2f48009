#!/bin/bash
# Runs the task's own tests as they were, and more of them, against the agent's intervals.py.
set -euo pipefail
mkdir -p /logs/verifier
echo 0 >/logs/verifier/reward.txt

cd /tests
for tests in test_intervals.py test_contract.py; do
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/app timeout 20 python3 "$tests" || exit 0
done
echo 1 >/logs/verifier/reward.txt
