#!/usr/bin/env bash
# mawk 1.3.4-20200120, which is `awk` of Debian 12: sums, formats, patterns and random numbers
#
# Guess: as gawk: whole numbers are printed whole, {2} in a pattern is twice, and `rand` gives the same numbers in each run.
# Behaviour: `print` writes whole numbers from 2147483648 on with six digits, `printf "%d"` writes 2147483647 for all of them,
# and %.0f writes them. /a{2}/ matches the text "a{2}", and not "aa". `rand` is seeded with the time.
. "$(dirname "$0")/common.sh"
needs mawk
mawk -W version 2>&1 | sed -n 1p

printf '%s\n' 3000000000 1 >bytes
seen "a sum, by print" "$(mawk '{ sum += $1 } END { print sum }' bytes)" "3e+09"
seen "by printf %d" "$(mawk '{ sum += $1 } END { printf "%d", sum }' bytes)" 2147483647
seen "by printf %.0f" "$(mawk '{ sum += $1 } END { printf "%.0f", sum }' bytes)" 3000000001
seen "2147483647 and 2147483648, by print" "$(mawk 'BEGIN { print 2147483647, 2147483648 }')" "2147483647 2.14748e+09"
seen "a{2} in aa and a{2}" "$(printf '%s\n' aa 'a{2}' | mawk '/^a{2}$/' | xargs)" "a{2}"
first=$(mawk 'BEGIN { print rand() }')
sleep 1.1
second=$(mawk 'BEGIN { print rand() }')
seen "are two runs equal" "$([ "$first" = "$second" ] && echo yes || echo no)" no
