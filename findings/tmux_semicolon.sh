#!/usr/bin/env bash
# tmux 3.3a (of the system): keys that end in a semicolon
#
# Guess: `send-keys 'echo a;' Enter` types these keys, for the shell has passed them as one argument.
# Behaviour: a semicolon at the end of an argument ends tmux's own command, so `Enter` is looked for as another command,
# and nothing is typed; with -l, too, the semicolon is dropped. `\;` is typed as `;`.
. "$(dirname "$0")/common.sh"
needs tmux
tmux -V

run() { tmux -f /dev/null -S "$work/socket" "$@"; }
stop() { run kill-server; }
run new-session -d -x 80 -y 24 cat
at_end+=(stop)
shown() { sleep 0.5; run capture-pane -p | grep -v '^$' || true; }
seen "send-keys 'echo a;' Enter" "$(run send-keys 'echo a;' Enter 2>&1 || true)" "unknown command: Enter"
seen "the screen" "$(shown)" ""
run send-keys -l 'echo b;'
seen "send-keys -l 'echo b;'" "$(shown)" "echo b"
run send-keys -l ' c\;'
seen "send-keys -l ' c\\;'" "$(shown)" "echo b c;"
