#!/usr/bin/env bash
# bash 5.2.15 (of the system) with pexpect 4.9.0: the echo of a command that is longer than a terminal's line
#
# Guess: bash echoes what is typed, so that a harness finds its command in the output, and the command's output behind it.
# Behaviour: beyond 80 columns, with TERM=dumb, only the end of the command is there, behind a "<"; with TERM=xterm the first
# character of each further line is there twice, with a carriage return between. Without `readline`, by --noediting, the echo is
# the command.
. "$(dirname "$0")/common.sh"
packages pexpect==4.9.0
bash --version | sed -n 1p

cat >type.py <<'PYTHON'
import sys
import pexpect
command = "echo " + " ".join(f"{number:03}" for number in range(40))
for terminal, *options in ("dumb",), ("xterm",), ("dumb", "--noediting"):
    shell = pexpect.spawn("bash", ["--norc", "--noprofile", *options], encoding="utf-8", timeout=20, dimensions=(24, 80),
                          env={"PS1": "ready> ", "TERM": terminal, "PATH": "/usr/bin:/bin", "HISTFILE": "/dev/null"})
    shell.expect_exact("ready> ")
    shell.sendline(command)
    shell.expect_exact("ready> ")
    print(command in shell.before, "<" in shell.before)
    shell.sendline("exit")
    shell.expect(pexpect.EOF)
PYTHON
python type.py >out
seen "TERM=dumb: the command is in the output, a < is" "$(sed -n 1p out)" "False True"
seen "TERM=xterm" "$(sed -n 2p out)" "False False"
seen "TERM=dumb, --noediting" "$(sed -n 3p out)" "True False"
