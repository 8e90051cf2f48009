#!/usr/bin/env bash
# Expect 5.45.4, as in Debian 12: a script that answers the questions of an installer in a sandbox
#
# Guess: a prompt is recognised by its own text; if it does not come, the script ends with an error; the output is kept until it is read.
# Behaviour: the text is a pattern, in which [y/N] is one of three characters, so that the prompt "Go on? [y/N]" is not recognised by its own
# text, but by "Go on? y". After ten seconds, or `timeout`, the script goes on, types the answer, and ends with 0. Of a long output only the
# last part is kept, a few thousand characters.
. "$(dirname "$0")/common.sh"
export LD_LIBRARY_PATH=$work/debian/usr/lib/$(uname -m)-linux-gnu TCL_LIBRARY=$work/debian/usr/share/tcltk/tcl8.6
for each in libtcl8.6 tcl8.6 tcl-expect expect; do debian $each; done
expect -v

cat >prompt <<'TCL'
log_user 0
set timeout 2
proc asked {prompt} {
    spawn sh -c "printf '$prompt '; sleep 20"
    expect {Go on? [y/N]} { puts recognised } timeout { puts "not recognised" }
    close
}
asked {Go on? [y/N]}
asked {Go on? y}
TCL
expect prompt >out
seen "Go on? [y/N]" "$(sed -n 1p out)" "not recognised"
seen "Go on? y" "$(sed -n 2p out)" "recognised"
cat >late <<'TCL'
log_user 0
set timeout 1
spawn sh -c {read -r answer; echo "answer $answer"}
expect "Remove all files?"
send "yes\r"
expect -re {answer \w+} { puts $expect_out(0,string) }
spawn sh -c {seq 5000; exit 3}
set timeout 10
expect eof
puts [expr {[string first "\n2500\r" $expect_out(buffer)] < 0}][string match *5000* $expect_out(buffer)]
TCL
expect late >out && status=$?
seen "an answer to a question that did not come" "$(sed -n 1p out)" "answer yes"
seen "of 5000 lines: is line 2500 missing, is the last one there, and the status" "$(sed -n 2p out) $status" "11 0"
