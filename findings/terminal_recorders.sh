#!/usr/bin/env bash
# asciinema 2.4.0, script of util-linux 2.38.1: a command that is recorded in a terminal of its own
#
# Guess: the status is that of the command, and the record is what it wrote.
# Behaviour: both end with 0 where the command ends with 3, for `script` unless -e is given. What is piped to `script` is typed at the
# terminal, so that the record has it as output as well, as if the command had written it. The recording of asciinema has no status.
. "$(dirname "$0")/common.sh"
needs script
script --version
packages asciinema==2.4.0

export ASCIINEMA_CONFIG_HOME=$work SHELL=/bin/sh
venv/bin/asciinema rec -q -c 'echo done; exit 3' record </dev/null >/dev/null && status=0 || status=$?
seen "status by asciinema, and all that it has recorded" "$status $(sed '1d; s/^[^,]*, //; s/]$//' record)" '0 "o", "done\r\n"'
status() { script -q "$@" -c 'echo done; exit 3' log </dev/null >/dev/null && echo 0 || echo $?; }
seen "by script, and by script -e" "$(status) $(status -e)" "0 3"
echo yes | script -q -c 'read -r answer' log >/dev/null
seen "output of a command that only reads" "$(grep -a -c yes log)" "1"
