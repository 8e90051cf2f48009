#!/usr/bin/env bash
# Installs what the tests of the page use, and only what is missing: the distribution's Chromium, and where npm is there, the
# packages that the page is built with. tvsnap itself needs none of them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

one_set_up_at_a_time
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
    install_packages chromium
if command -v npm >/dev/null && [ ! page/node_modules/.package-lock.json -nt page/package-lock.json ]; then
    say "installing the packages that the page is built with"
    run_logged npm "npm ci" npm --prefix page ci --ignore-scripts --no-audit --no-fund
fi
