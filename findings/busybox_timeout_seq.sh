#!/usr/bin/env bash
# BusyBox 1.35.0 (of the system), whose programs are those of Alpine's images
#
# Guess: `timeout` ends with 124 after the limit, `seq 0 0.1 0.3` ends with 0.3, and awk's %d prints a whole number.
# Behaviour: the status is 143, as of a program that SIGTERM has ended by itself; `seq` stops
# at 0.2, but gets from 0 to 1 in steps of 0.1; %d and %x of numbers above 2147483647 are -2147483648
# and 80000000.
. "$(dirname "$0")/common.sh"
command -v busybox >/dev/null || debian busybox
busybox | sed -n '1s/ (.*//p'

status() { { "$@"; } 2>/dev/null && echo 0 || echo $?; }
seen "timeout of BusyBox and of coreutils" "$(status busybox timeout 1 sleep 5) $(status timeout 1 sleep 5)" "143 124"
seen "seq 0 0.1 0.3" "$(busybox seq 0 0.1 0.3 | xargs), $(seq 0 0.1 0.3 | xargs)" "0.0 0.1 0.2, 0.0 0.1 0.2 0.3"
seen "seq 0 0.1 1" "$(busybox seq 0 0.1 1 | tail -n 1)" "1.0"
seen "awk's %d and %x of 3000000000" "$(busybox awk 'BEGIN { printf "%d %x", 3000000000, 3000000000 }')" "-2147483648 80000000"
seen "the same, by print" "$(busybox awk 'BEGIN { print 3000000000 }')" 3000000000
