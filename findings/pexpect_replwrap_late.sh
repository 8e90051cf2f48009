#!/usr/bin/env bash
# pexpect 4.9.0 with bash 5.2.15 (of the system): `replwrap.bash()`, for one command after the other
#
# Guess: each call returns the output of its command; one that takes too long is over with its error.
# Behaviour: behind a command that took longer than its timeout, each call returns the output of the one before, for good. So it does if a command
# prints the text of the prompt, [PEXPECT_PROMPT>, as a file about it has: that call returns nothing. In Python's, a blank line within a block ends it,
# and the rest is an error in the output. A command that changes PS1 has no end.
. "$(dirname "$0")/common.sh"
packages pexpect==4.9.0
bash --version | sed -n 1p

cat >late.py <<'PYTHON'
from pexpect import replwrap
def outputs(shell, *commands):
    seen = []
    for command, timeout in commands:
        try:
            seen.append(shell.run_command(command, timeout=timeout).split())
        except Exception as error:
            seen.append(type(error).__name__)
    print(*seen)
outputs(replwrap.bash(), ("sleep 2; echo late", 1), ("echo one", 9), ("echo two", 9), ("echo three", 9))
outputs(replwrap.bash(), ("echo '[PEXPECT_PROMPT>'; echo zero", 9), ("echo one", 9), ("echo two", 9))
outputs(replwrap.bash(), ("PS1='$ '", 1))
outputs(replwrap.python("python3"), ("if True:\n    print(11)\n\n    print(22)", 9))
PYTHON
python late.py >out
seen "a command of two seconds with a timeout of one, and echo of one, two and three" "$(sed -n 1p out)" "TIMEOUT ['late'] ['one'] ['two']"
seen "the prompt and zero are printed, then one, and two" "$(sed -n 2p out)" "[] ['zero'] ['one']"
seen "PS1 is changed" "$(sed -n 3p out)" "TIMEOUT"
seen "Python: a block with a blank line, that prints 11 and 22" "$(sed -n 4p out | grep -oE "'11'|'22'|IndentationError" | xargs)" "11 IndentationError"
