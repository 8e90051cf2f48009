#!/usr/bin/env bash
# Python Fire 0.7.1: the arguments of a script that starts a rollout, written as other programs take them
#
# Guess: a text for a parameter arrives as it is, and a flag can be set to false.
# Behaviour: each argument that can be read as Python is a value: of "a#b" the rest is a comment, the commit 123e456 is infinity, version
# 1.10 is 1.1, "a, b" is a pair. `--verbose false` is the text "false", which is true. A name without a value is True, so that
# an unquoted empty variable of the shell gives the task True; `--notask` gives False.
. "$(dirname "$0")/common.sh"
packages fire==0.7.1

cat >start.py <<'PYTHON'
import fire
def run(task, verbose=True, n=1):
    return repr((task, verbose, n))
fire.Fire(run)
PYTHON
given() { python start.py "$@"; }
seen "fix#12" "$(given 'fix#12')" "('fix', True, 1)"
seen "the commit 123e456" "$(given 123e456)" "(inf, True, 1)"
seen "the version 1.10" "$(given 1.10)" "(1.1, True, 1)"
seen "a, b" "$(given 'a, b')" "(('a', 'b'), True, 1)"
seen "--verbose false" "$(given task --verbose false)" "('task', 'false', 1)"
empty=
# shellcheck disable=SC2086 # the point
seen "--task with an empty variable, and --n 2" "$(given --task $empty --n 2)" "(True, True, 2)"
seen "--notask" "$(given --notask)" "(False, True, 1)"
