#!/usr/bin/env bash
# supervisor 4.3.0: a step that prepares a sandbox, as a program with autorestart=false
#
# Guess: it is run once, as it ends with status 0.
# Behaviour: a program that ends within `startsecs`, one second, has not been started, for supervisor: it is run four times, is FATAL then,
# and the log says "exit status 0; not expected". `autorestart` counts only after that second; with startsecs=0 it is run once.
. "$(dirname "$0")/common.sh"
packages supervisor==4.3.0 setuptools==80.9.0

program() { printf '%s\n' "[program:$1]" "command=sh -c 'echo done >>$work/$1'" "autorestart=false" "${@:2}"; }
{
    printf '%s\n' '[supervisord]' nodaemon=true logfile=/dev/null logfile_maxbytes=0 "pidfile=$work/pid"
    program plain
    program zero startsecs=0
} >settings
venv/bin/supervisord -c settings >log 2>&1 &
server=$!
stop() { kill "$server"; wait "$server"; }
at_end+=(stop)
for ((i = 0; i < 600; i++)); do grep -q FATAL log && break; sleep 0.1; done
seen "runs" "$(wc -l <plain)" "4"
seen "runs with startsecs=0" "$(wc -l <zero)" "1"
seen "what the log says of the first" "$(sed -n 's/.*exited: plain (\(.*\))/\1/p' log | sort -u)" "exit status 0; not expected"
