#!/usr/bin/env bash
# plumbum 2.0.2, sh 2.4.0: commands with values of Python, and what they write
#
# Guess: None is an error, or the text "None"; a command has the variables that `os.environ` has now; other bytes are replaced, or an error; as by subprocess.
# Behaviour: both leave an argument None out, sh writes -m None for m=None, and nothing for m=False. plumbum copies the variables as it is imported: what is set in `os.environ`
# later is missing, and what is set in `local.env` is not in `os.environ`; the folder is that of now. plumbum drops bytes that are no UTF-8 without a word, sh raises as the result
# is read. A pipe of plumbum has the status of each part, so that `yes | head` is an error, and of its errors' texts the last part's. For sh a program writes
# to a terminal, and a loop over its result goes over characters.
. "$(dirname "$0")/common.sh"
packages plumbum==2.0.2 sh==2.4.0

cat >values.py <<'PYTHON'
import os
import sh
from plumbum import ProcessExecutionError, local
shell, command = local["sh"], sh.Command("sh")
print(repr(local["echo"]("a", None, "b")), repr(sh.echo("a", None, "b")), repr(sh.echo(m=None)), repr(sh.echo(m=False)))
os.environ["RUN"] = "7"
local.env["TASK"] = "8"
print(repr(shell("-c", "echo $RUN.$TASK")), repr(command("-c", "echo $RUN.$TASK")), os.environ.get("TASK"))
print(repr(shell("-c", r"printf 'a\377b'")), end=" ")
try:
    print(command("-c", r"printf 'a\377b'"))
except UnicodeDecodeError:
    print("UnicodeDecodeError")
try:
    print((local["yes"] | local["head"]["-n1"])())
except ProcessExecutionError as error:
    print(error.retcode, repr(error.stdout))
print((shell["-c", "echo wrong >&2; echo a"] | local["cat"]).run())
print(command("-c", "test -t 1 && echo terminal").strip(), list(sh.seq(2)))
PYTHON
python values.py >out
seen "None among the arguments: plumbum, sh; m=None and m=False of sh" "$(sed -n 1p out)" "'a b\\n' 'a b\\n' '-m None\\n' '\\n'"
seen "variables set in os.environ and local.env: plumbum, sh; os.environ" "$(sed -n 2p out)" "'.8\\n' '7.\\n' None"
seen "a byte that is no UTF-8: plumbum, sh" "$(sed -n 3p out)" "'ab' UnicodeDecodeError"
seen "yes | head -n1 by plumbum" "$(sed -n 4p out)" "-13 'y\\n'"
seen "a pipe of plumbum whose first part writes an error: status, output, errors" "$(sed -n 5p out)" "(0, 'a\\n', '')"
seen "sh: what a program writes to; a loop over its result" "$(sed -n 6p out)" "terminal ['1', '\\n', '2', '\\n']"
