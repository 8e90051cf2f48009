#!/usr/bin/env bash
# Docker Compose 2.26.1: tasks in the folders `task-1.0` and `task-10`, or `fix.git` and `fixgit`
#
# Guess: folders of other names are other projects; characters that are not allowed are replaced.
# Behaviour: they are dropped, and capitals are made small, without a word: both are the project `task-10`, with the
# network `task-10_default`. What `up`, `ps` and `down` know of a container is its project: the tasks have one set of them.
. "$(dirname "$0")/common.sh"
"$here/../scripts/fetch_compose.sh" "$work"
./docker-compose version

project() {
    mkdir -p "$1"
    echo 'services: {main: {image: none}}' >"$1/compose.yaml"
    (cd "$1" && "$work/docker-compose" config | sed -n 's/^ *name: //p' | xargs)
}
seen "names of task-1.0: project, network" "$(project task-1.0)" "task-10 task-10_default"
seen "of task-10" "$(project task-10)" "task-10 task-10_default"
seen "of Task-1.0" "$(project Task-1.0)" "task-10 task-10_default"
seen "of fix.git" "$(project fix.git)" "fixgit fixgit_default"
seen "of fixgit" "$(project fixgit)" "fixgit fixgit_default"
