#!/usr/bin/env bash
# Docker Compose 2.26.1: `cpus` beside `deploy.resources.limits`
#
# Guess: a limit of memory in the long form and one of processors in the short form do not touch each other.
# Behaviour: once `deploy.resources.limits` says anything, every short form must be repeated there with the same value;
# a limit that it does not name counts as a different one, and the file is refused.
. "$(dirname "$0")/common.sh"
"$here/../scripts/fetch_compose.sh" "$work"
./docker-compose version

said() { printf 'services:\n  main: {image: none, cpus: 1, deploy: {resources: {limits: {%s}}}}\n' "$1" >compose.yaml; }
said 'memory: 1g'
status=0
message=$(./docker-compose config 2>&1 >said) || status=$?
seen "cpus: 1, and limits of memory only" "$status ${message%: *}" \
    "15 services.main: can't set distinct values on 'cpus' and 'deploy.resources.limits.cpus'"
said 'memory: 1g, cpus: "1"'
seen "the same, repeated" "$(./docker-compose config --services)" main
