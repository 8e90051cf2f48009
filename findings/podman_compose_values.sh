#!/usr/bin/env bash
# podman-compose 1.6.0: what a compose file of a task hands to podman (here a script that writes its arguments down)
#
# Guess: the same as Docker Compose hands to Docker.
# Behaviour: YAML is read as its version 1.1: 12:30 is 750, the variable ON with `yes` is True=True, and ports as 56:34, without
# quotes, are one port, 3394. $A in a file of `env_file` stays as it is. A command that is one text with && has && and what
# follows as arguments, where Docker Compose drops them. Beside `mem_limit` and `cpus`, the limits of `deploy` count, where
# Docker Compose refuses the file.
. "$(dirname "$0")/common.sh"
packages podman-compose==1.6.0

mkdir programs
cat >programs/podman <<'SH'
#!/bin/sh
case "$1 $*" in --version*) echo podman version 5.4.0;; *json*) echo '[]';; esac
if [ "$1" = create ]; then printf '%s\n' "$@" >>"$CALLS"; fi
SH
chmod +x programs/podman
echo 'B=$A-2' >more.env
cat >compose.yml <<'YAML'
services:
  task:
    image: probe
    environment:
      AT: 12:30
      ON: yes
      LANGUAGE: 3.10
      MODE: 0755
    env_file: more.env
    ports: [56:34]
    mem_limit: 1g
    cpus: 0.5
    deploy: {resources: {limits: {memory: 2g, cpus: '1'}}}
    command: echo one && echo two
YAML
CALLS=$work/calls A=1 PATH=$work/programs:$PATH COMPOSE_PROJECT_NAME=probe venv/bin/podman-compose up -d >log 2>&1
after() { grep -A1 -x -e "$1" calls | grep -v -x -e "$1" -e -- | xargs; }
seen "variables" "$(after -e)" 'B=$A-2 AT=750 True=True LANGUAGE=3.1 MODE=493'
seen "ports" "$(after -p)" 3394
seen "memory, processors" "$(after -m) $(after --cpus)" "2g 1.0"
seen "image and command" "$(sed -n '/^probe$/,$p' calls | xargs)" "probe echo one && echo two"
