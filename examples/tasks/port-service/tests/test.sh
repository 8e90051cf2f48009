#!/bin/bash
# Asks the service that the agent left running.
set -euo pipefail
mkdir -p /logs/verifier
echo 0 >/logs/verifier/reward.txt
timeout 50 python3 /tests/test_service.py || exit 0
echo 1 >/logs/verifier/reward.txt
