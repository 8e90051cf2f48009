#!/usr/bin/env bash
# tmux 3.3a (of the system): a new session for the next rollout, with that rollout's variables
#
# Guess: it has the variables, and the limits of open files, of the process that asked for it, as each child of a process has.
# Behaviour: the server makes it, with what it was itself started with by the first session: TASK is that of the first rollout,
# a variable that only the second one has is missing, and so is a limit. PATH and the folder are the second one's. With
# `-e TASK=...` the variable is what was asked for.
. "$(dirname "$0")/common.sh"
needs tmux
tmux -V

run() { tmux -f /dev/null -S "$work/socket" "$@"; }
stop() { run kill-server; }
report() { echo "echo \"\$TASK \${ONLY-none} \$(ulimit -n) \$(basename \"\$PWD\") \${PATH##*:}\" >'$work/$1'; cat"; }
wait_for() { until [ -s "$1" ]; do sleep 0.1; done; }
mkdir one two
(cd one && ulimit -S -n 512 && TASK=first PATH=$PATH:/one run new-session -d "$(report 1)")
at_end+=(stop)
wait_for 1
(cd two && ulimit -S -n 256 && TASK=second ONLY=second PATH=$PATH:/two run new-session -d "$(report 2)")
wait_for 2
run new-session -d -e TASK=second "$(report 3)"
wait_for 3
seen "first session" "$(cat 1)" "first none 512 one /one"
seen "second session" "$(cat 2)" "first none 512 two /two"
seen "with -e" "$(cut -d' ' -f1 3)" "second"
