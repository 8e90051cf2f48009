#!/usr/bin/env bash
# ripgrep 13.0.0, as in Debian 12: `rg WORD` without a folder, started by a program that runs commands for an agent
#
# Guess: it searches the folder, as in a terminal.
# Behaviour: if its standard input is a pipe or a file, it searches that, and finds nothing, with status 1; with /dev/null it searches the
# folder. In a loop that reads lines, the first `rg` takes the other lines. In `-r 'get_$1_id'` the group is named `1_id`, so that
# the result is "get_". After a zero character, lines that fit are not printed, but `-c` counts them.
. "$(dirname "$0")/common.sh"
debian ripgrep
rg --version | sed -n 1p

mkdir folder
cd folder
echo "def get_user(): pass" >task.py
printf 'get_user\n\0\nget_user\n' >data
cat >../run.py <<'PYTHON'
import subprocess
for name, given in (("a pipe", subprocess.PIPE), ("/dev/null", subprocess.DEVNULL)):
    run = subprocess.run(["rg", "get_user", "--type", "py"], stdin=given, capture_output=True, text=True)
    print(run.returncode, run.stdout.strip())
PYTHON
"${FINDINGS_PYTHON:-python3}" ../run.py >../out
seen "status and output with a pipe as input" "$(sed -n 1p ../out)" "1 "
seen "with /dev/null" "$(sed -n 2p ../out)" "0 task.py:def get_user(): pass"
loop() { while read -r line; do rg -q "$line" || true; echo "$line"; done; }
seen "turns of a loop over three lines" "$(printf '%s\n' one two three | loop)" "one"
seen "(user) replaced by the_\$1_id" "$(rg -o '(user)' -r 'the_$1_id' task.py)" "the_"
seen "count of lines in a file with a zero character" "$(rg -c get_user data)" "2"
seen "lines printed" "$(rg get_user data | grep -c '^get_user' || true)" "0"
