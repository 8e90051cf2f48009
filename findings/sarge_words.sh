#!/usr/bin/env bash
# sarge 0.1.8: a command line with pipes, as one writes it for a shell
#
# Guess: && and | as in a shell; what it does not know is an error, or text.
# Behaviour: of two lines the second is arguments of the first. `a#b` is "a". [x] is three words, and so is {a,b}; of `echo $(echo a)` the command echo has the argument $ alone.
# "A=1 sh" is an unknown command. A pipe has the status of its last part. The output is read once: behind `read` the text is "".
. "$(dirname "$0")/common.sh"
packages sarge==0.1.8

cat >words.py <<'PYTHON'
from sarge import capture_stdout, get_stdout
for line in ("echo a\necho b", "echo file#12", "echo app/[id]/page", "echo {a,b}", "echo $(echo a)", "echo `echo a`"):
    print(repr(get_stdout(line)))
try:
    capture_stdout("A=1 sh -c true")
except ValueError as error:
    print(error)
pipe = capture_stdout("sh -c 'echo a; exit 3' | cat")
print(pipe.returncode, pipe.returncodes)
done = capture_stdout("echo a")
print(done.stdout.read(), repr(done.stdout.text))
PYTHON
python words.py >out 2>errors || { cat errors >&2; exit 2; }
seen "echo a, and echo b in a second line" "$(sed -n 1p out)" "'a echo b\\n'"
seen "echo file#12" "$(sed -n 2p out)" "'file\\n'"
seen "echo app/[id]/page" "$(sed -n 3p out)" "'app/ [ id ] /page\\n'"
seen "echo {a,b}" "$(sed -n 4p out)" "'{ a,b }\\n'"
seen "echo \$(echo a)" "$(sed -n 5p out)" "'\$\\n'"
seen "echo \`echo a\`" "$(sed -n 6p out)" "'\` echo a \`\\n'"
seen "A=1 sh -c true" "$(sed -n 7p out)" "Command not found: A=1"
seen "a pipe whose first part fails" "$(sed -n 8p out)" "0 [3, 0]"
seen "the output by read, and then as text" "$(sed -n 9p out)" "b'a\\n' ''"
