#!/usr/bin/env bash
# GNU Screen 4.9.0, as in Debian 12: a line of a model is typed into a session by `screen -X stuff "$line"`
#
# Guess: it is typed as it is, or there is an error.
# Behaviour: Screen reads it as a line of its settings: $HOME is replaced by its own value, before any shell sees it, ^A in HEAD^A is the
# key Ctrl-A, as is \1, and \n is a line end, so that `git`, `sed` and `printf` get other texts. Of a line of 1000 characters nothing is
# typed, with status 0. A command of Screen that does not exist has status 0 as well.
. "$(dirname "$0")/common.sh"
export LD_LIBRARY_PATH=$work/debian/usr/lib/$(uname -m)-linux-gnu
for each in libutempter0 screen; do debian $each; done
export SCREENDIR=$work/sockets HOME=$work/home
mkdir -m 700 sockets home
screen --version || true

session() { screen -S task -X "$@"; }
stop() { session quit; }
screen -c /dev/null -S task -dm sh -c "stty -isig; cat >'$work/typed'"
at_end+=(stop)
until [ -e typed ]; do sleep 0.1; done
long=$(printf 'y%.0s' $(seq 1000))
# shellcheck disable=SC2016 # Screen is given the dollar
for line in 'echo $HOME' 'git show HEAD^A' 'sed s/\(a\)/[\1]/' 'printf a\nb' "$long" 'end'; do
    session stuff "$line" && status=$?
    [ "$line" != "$long" ] || seen "status of a line of 1000 characters" "$status" 0
    session stuff $'\n'
done
for ((i = 0; i < 300; i++)); do grep -q end typed && break; sleep 0.1; done
line() { sed -n "$1l" typed; }
seen 'echo $HOME' "$(line 1)" "echo $HOME\$"
seen 'git show HEAD^A' "$(line 2)" 'git show HEAD\001$'
seen 'sed s/\(a\)/[\1]/' "$(line 3)" 'sed s/\\(a\\)/[\001]/$'
seen 'printf a\nb' "$(line 4)|$(line 5)" 'printf a$|b$'
seen "the line of 1000 characters" "$(line 6)" "$"
seen "end" "$(line 7)" 'end$'
session nosuchcommand && status=$?
seen "status of a command that does not exist" "$status" 0
