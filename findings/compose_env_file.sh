#!/usr/bin/env bash
# Docker Compose 2.26.1: references and comments in a file of `env_file`
#
# Guess: as in a shell, a reference means the nearest line above; and what follows a `#` behind the `=` is a comment.
# Behaviour: a reference means the variable of `.env` if there is one of that name, though the line above sets another
# value, which the container gets. And a `#` that follows the `=`, with or without spaces, begins the value.
. "$(dirname "$0")/common.sh"
"$here/../scripts/fetch_compose.sh" "$work"
./docker-compose version

printf 'HOST=from-dot-env\n' >.env
# shellcheck disable=SC2016 # Compose replaces it
printf 'HOST=from-the-line-above\nURL=http://$HOST/\nNONE= # not set yet\nSOME=x # said\n' >app.env
printf 'services:\n  main: {image: none, env_file: app.env}\n' >compose.yaml
value() { sed -n "s/^      $1: //p" <(./docker-compose config); }
seen "HOST=from-the-line-above" "$(value HOST)" from-the-line-above
seen "URL=http://\$HOST/" "$(value URL)" http://from-dot-env/
seen "NONE= # not set yet" "$(value NONE)" "'# not set yet'"
seen "SOME=x # said" "$(value SOME)" x
