#!/usr/bin/env bash
# GNU coreutils 9.1 (of the system): `date -d '2024-01-01 10:00 +2 hours'`, with UTC as zone
#
# Guess: 12:00, as `date -d '+2 hours'` is two hours from now; and '-1 week' is a week earlier.
# Behaviour: behind a time, a signed number is a zone, and the word that remains means one hour or one week: the result is 09:00,
# and '-1 week' is a week later and an hour later. Without the sign, or with the zone before it, it is 12:00. A month
# from 31 January is 2 March. Nothing is said, unless with --debug.
. "$(dirname "$0")/common.sh"
date --version | sed -n 1p

at() { TZ=UTC date -d "$1" '+%F %R'; }
seen "2024-01-01 10:00 +2 hours" "$(at '2024-01-01 10:00 +2 hours')" "2024-01-01 09:00"
seen "2024-01-15 10:00 -1 week" "$(at '2024-01-15 10:00 -1 week')" "2024-01-22 11:00"
seen "2024-01-01 10:00 2 hours" "$(at '2024-01-01 10:00 2 hours')" "2024-01-01 12:00"
seen "2024-01-01 10:00 UTC +2 hours" "$(at '2024-01-01 10:00 UTC +2 hours')" "2024-01-01 12:00"
seen "2024-01-01 +2 hours" "$(at '2024-01-01 +2 hours')" "2024-01-01 02:00"
seen "2024-01-31 +1 month" "$(at '2024-01-31 +1 month')" "2024-03-02 00:00"
