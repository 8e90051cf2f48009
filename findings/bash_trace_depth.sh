#!/usr/bin/env bash
# bash 5.2.15 (of the system): `set -x` in a command that `eval` or `source` runs
#
# Guess: each command that is traced is printed behind one `+ `, the value of PS4.
# Behaviour: the first character of PS4 is repeated for each `eval`, `source` and command substitution around the
# command. A tool that runs an agent's commands by `eval` changes what `set -x` shows.
. "$(dirname "$0")/common.sh"
echo "bash $BASH_VERSION"

trace() { bash -c "$1" 2>&1 >out | tail -n 1; }
seen "set -x; echo a" "$(trace 'set -x; echo a')" "+ echo a"
seen "eval 'set -x; echo a'" "$(trace "eval 'set -x; echo a'")" "++ echo a"
echo 'set -x; echo a' >file
seen "eval '. ./file'" "$(trace "eval '. ./file'")" "+++ echo a"
