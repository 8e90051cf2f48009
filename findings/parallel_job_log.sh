#!/usr/bin/env bash
# GNU parallel 20221122 (of Debian 12): tasks that are run by it, with a log of their statuses
#
# Guess: the log has a status that is not 0 for a killed job; --resume runs the tasks that are not in the log; braces of code stay.
# Behaviour: a job that SIGKILL ends has the status 0 in the log, and the signal in another column. --resume counts: of three other
# tasks it skips the first two, if two are in the log. Each {} of the command is the task, also a dict of Python. An empty line
# is a task. `parallel` ends with the number of failed jobs.
. "$(dirname "$0")/common.sh"
needs perl
command -v parallel >/dev/null || debian parallel
export HOME=$work # for files that it makes
parallel --version | sed -n 1p

run() { parallel --will-cite -j1 -k "$@" 2>/dev/null && echo "status 0" || echo "status $?"; }
seen "a job that is killed, and one that fails" "$(run --joblog log '{}' ::: 'kill -9 $$' 'exit 3' | xargs)" "status 2"
seen "their status and signal in the log" "$(cut -f 7,8 log | sed 1d | xargs)" "0 9 3 0"
seen "--resume with a, b and c" "$(run --resume --joblog log 'echo ran {}' ::: a b c | xargs)" "ran c status 0"
seen "a dict of Python" "$(run 'python3 -c "d = {}; print(d)"' ::: 7 | xargs)" "7 status 0"
seen "an empty line between tasks" "$(printf 'a\n\nb\n' | run 'echo [{}]' | xargs)" "[a] [] [b] status 0"
