#!/usr/bin/env bash
# bash 5.2.15 (of the system): `wait -n` for jobs that have ended
#
# Guess: `wait -n` gives the status of a job that has ended and was not waited for.
# Behaviour: in a script, a job that ended before `wait -n` begins is not counted: it answers 127, as if there were no job.
# `wait PID` still knows the status. So a script that collects results by `wait -n` misses those that came too early.
. "$(dirname "$0")/common.sh"
echo "bash $BASH_VERSION"

seen "two jobs end, then wait -n" "$(bash -c '(exit 3) & (exit 4) & sleep 0.5; wait -n; echo $?')" 127
seen "one ends after wait -n began" "$(bash -c '(sleep 0.5; exit 3) & wait -n; echo $?')" 3
seen "two jobs end, then wait PID" "$(bash -c '(exit 3) & p=$!; (exit 4) & sleep 0.5; wait $p; echo $?')" 3
