#!/usr/bin/env bash
# tmux 3.3a (of the system): a line of one word that a model wants typed, by `send-keys "$line" Enter`
#
# Guess: it is typed, unless it is a name of a key as the manual writes them, as `Enter`, `Up` and `C-c`.
# Behaviour: names are compared without case: `end`, the last line of a loop in Lua or Ruby, is the key End; `home`, `up`, `tab`,
# `space` and `f1` are keys, and 0x41 is "A". The program gets an escape sequence in place of the word. With two words, as
# `end if`, or with -l, the text is typed.
. "$(dirname "$0")/common.sh"
needs tmux
tmux -V

run() { tmux -f /dev/null -S "$work/socket" "$@"; }
stop() { run kill-server; }
run new-session -d -x 80 -y 24 "cat >'$work/typed'"
at_end+=(stop)
for line in 'begin' 'end' 'up' 'space' '0x41' 'end if'; do run send-keys "$line" Enter; done
run send-keys -l end
run send-keys Enter
until [ "$(wc -l <typed)" = 7 ]; do sleep 0.1; done
line() { sed -n "$1p" typed | cat -v; }
seen "begin" "$(line 1)" begin
seen "end" "$(line 2)" '^[[4~'
seen "up" "$(line 3)" '^[[A'
seen "space" "$(line 4)" ' '
seen "0x41" "$(line 5)" A
seen "end if" "$(line 6)" "end if"
seen "end with -l" "$(line 7)" end
