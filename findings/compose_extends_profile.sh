#!/usr/bin/env bash
# Docker Compose 2.26.1: a service that extends one with a profile
#
# Guess: the profile keeps the template from being started; the service that extends it has none, and is started.
# Behaviour: `profiles` is taken over like other keys, so neither is started, and nothing says so.
. "$(dirname "$0")/common.sh"
"$here/../scripts/fetch_compose.sh" "$work"
./docker-compose version

cat >compose.yaml <<'END'
services:
  template: {image: none, profiles: [never]}
  main: {extends: {service: template}, command: serve}
END
seen "services" "$(./docker-compose config --services 2>errors)" ""
seen "what it says about that" "$(cat errors)" ""
sed -i 's/command/profiles: [], command/' compose.yaml
seen "services with an empty list of profiles" "$(./docker-compose config --services)" ""
