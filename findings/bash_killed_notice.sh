#!/usr/bin/env bash
# bash 5.2.15 (of the system): what a script says of a background job that a signal ended
#
# Guess: a shell without job control says nothing of its background jobs; or it says the same for every signal.
# Behaviour: on the standard error of a script stands a line for SIGKILL, with the number of the process, but none for
# SIGTERM and SIGPIPE. Output that has such a line differs with each execution.
. "$(dirname "$0")/common.sh"
echo "bash $BASH_VERSION"

said() { bash -c "sleep 5 & kill -$1 \$!; sleep 0.3; :" 2>&1 | sed -E 's/ +/ /g; s/[0-9]+ Killed/PID Killed/'; }
seen "kill -TERM" "$(said TERM)" ""
seen "kill -PIPE" "$(said PIPE)" ""
seen "kill -KILL" "$(said KILL)" "bash: line 1: PID Killed sleep 5"
