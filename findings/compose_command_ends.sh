#!/usr/bin/env bash
# Docker Compose 2.26.1: a command that is one text with `&&`
#
# Guess: a shell runs it; or, if none does, `&&` and the rest are further arguments.
# Behaviour: the text is split into words, and everything from the operator on is dropped without a word. In quotes, an
# operator stays.
. "$(dirname "$0")/common.sh"
"$here/../scripts/fetch_compose.sh" "$work"
./docker-compose version

cat >compose.yaml <<'END'
services:
  one: {image: none, command: "migrate --all && serve --port 80"}
  two: {image: none, command: "sh -c 'migrate && serve'"}
END
words() {
    ./docker-compose config --format json 2>errors |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["services"][sys.argv[1]]["command"])' "$1"
}
seen "migrate --all && serve --port 80" "$(words one)" "['migrate', '--all']"
seen "sh -c 'migrate && serve'" "$(words two)" "['sh', '-c', 'migrate && serve']"
seen "what it says about that" "$(cat errors)" ""
