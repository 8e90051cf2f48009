#!/usr/bin/env bash
# tini 0.19.0 and dumb-init 1.2.5, as in Debian 12: as the first program of a container, in front of a command
#
# Guess: what is left in the background, a signal, and a program that is missing end alike with both.
# Behaviour: when the command has ended, dumb-init sends SIGTERM to what it has left, so that a log that was still written is cut off; tini, which is not
# PID 1, leaves it. SIGTERM reaches the children of the command by dumb-init, and with tini the command alone, so that its children stay. A missing
# program is 127 by tini and 2 by dumb-init, as if the command had said so, and a file that cannot be executed 126 and 2.
. "$(dirname "$0")/common.sh"
debian tini
debian dumb-init
tini --version
dumb-init --version 2>&1

state() { "$@" >/dev/null 2>&1 && echo 0 || echo $?; }
touch text
seen "status of a missing program, and of a text: tini" "$(state tini -s -- ./missing) $(state tini -s -- ./text)" "127 126"
seen "dumb-init" "$(state dumb-init ./missing) $(state dumb-init ./text)" "2 2"
left() {
    "$@" sh -c '(sleep 1; echo done >log) & exit 0'
    sleep 2
    cat log 2>/dev/null || echo "no log"
    rm -f log
}
seen "a log that is written behind the end of the command: tini" "$(left tini -s --)" "done"
seen "dumb-init" "$(left dumb-init)" "no log"
signalled() { # whether a child of the command is there behind SIGTERM
    "$@" sh -c 'sleep 30 & echo $! >child; wait' >/dev/null 2>&1 &
    local started=$! child
    until [ -s child ]; do sleep 0.1; done
    kill -TERM "$started"
    wait "$started" || true
    sleep 0.5
    child=$(cat child)
    rm child
    case $(ps -o stat= -p "$child" || true) in '' | Z*) echo gone;; *) echo there; kill "$child";; esac
}
seen "a child of the command behind SIGTERM: tini" "$(signalled tini -s --)" "there"
seen "tini -g" "$(signalled tini -s -g --)" "gone"
seen "dumb-init" "$(signalled dumb-init)" "gone"
