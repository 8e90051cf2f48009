#!/usr/bin/env bash
# libtmux 0.62.0, with the system's tmux: a pane that has ended, and names that are not there
#
# Guess: an error, as by tmux itself.
# Behaviour: the text of a pane that has ended is an empty list, also behind the server's end, and what is typed there returns as ever; its command is still "sh".
# `filter` with a misspelt field finds nothing. A key as "C-v" is followed by Enter. A variable that is set for the session is there for `getenv`, and
# not in the shells that run.
. "$(dirname "$0")/common.sh"
needs tmux
tmux -V
packages libtmux==0.62.0
cat >gone.py <<'PYTHON'
import time
import libtmux
server = libtmux.Server(socket_path="socket", config_file="/dev/null")
session = server.new_session("task", x=60, y=9, window_command="cat")
pane = session.active_pane
print(server.sessions.filter(session_nam="task"), server.sessions.filter(session_name__begins="t"))
other = session.new_window("other", window_shell="sh").active_pane
session.set_environment("RUN", "7")
other.send_keys("echo run=$RUN.")
time.sleep(1)
print(session.getenv("RUN"), [line for line in other.capture_pane() if line.startswith("run")])
other.send_keys("exit")
time.sleep(1)
print(other.capture_pane(), other.send_keys("ls"), other.cmd("send-keys", "ls").stderr, other.pane_current_command)
pane.send_keys("one", enter=False)
pane.send_keys("C-v")
time.sleep(1)
print(pane.capture_pane())
server.kill()
print(pane.capture_pane(), pane.send_keys("ls"), server.sessions)
PYTHON
python gone.py >out
seen "sessions with a misspelt field, and with begins for startswith" "$(sed -n 1p out)" "[] []"
seen "getenv, and a shell that runs" "$(sed -n 2p out)" "7 ['run=.']"
seen "a pane that has ended: its text, typing, what tmux says, its command" "$(sed -n 3p out)" "[] None [\"can't find pane: %1\"] sh"
seen "one, and the key C-v" "$(sed -n 4p out)" "['one^M']"
seen "behind the server's end: a text, typing, sessions" "$(sed -n 5p out)" "[] None []"
