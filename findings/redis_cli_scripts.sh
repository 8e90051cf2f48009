#!/usr/bin/env bash
# redis-cli and Redis 7.0.15, as in Debian 12: the state of a tool that is set and checked by a script
#
# Guess: an error is a status that is not 0; what is missing, what is empty, and what has two lines are told apart; numbers come back.
# Behaviour: errors are printed at standard output, with status 0, unless -e is given. A missing key and an empty text are both an empty
# line; a list of two is printed as a text with a line end. A script in Lua returns 3 for 3.99, and a list up to the first nil.
# Scores are floats, so that an id of 16 digits is another, and 0.1 has 17 digits.
. "$(dirname "$0")/common.sh"
export LD_LIBRARY_PATH=$work/debian/usr/lib/$(uname -m)-linux-gnu
for each in liblzf1 libjemalloc2 redis-tools redis-server; do debian $each; done
redis-server --version | cut -d ' ' -f 1-3

client() { redis-cli -s "$work/socket" "$@"; }
stop() { client shutdown nosave; }
redis-server --port 0 --unixsocket "$work/socket" --dir "$work" --save "" >log &
until [ -S socket ] && client ping >/dev/null; do sleep 0.1; done
at_end+=(stop)
client set name text >/dev/null
client incr name >out && status=$?
seen "INCR of a text: status, and the first word printed" "$status $(cut -d ' ' -f 1 out | sed -n 1p)" "0 ERR"
client set empty "" >/dev/null
client get empty >empty
client get missing >missing
seen "a missing key and an empty text" "$(cmp empty missing && wc -c <empty)" "1"
client rpush list a b >/dev/null
client set lines $'a\nb' >/dev/null
client lrange list 0 -1 >list
client get lines >lines
seen "a list of two, and a text of two lines" "$(cmp list lines && xargs <list)" "a b"
seen "3.99, and {1, nil, 3}, by a script" "$(client eval 'return 3.99' 0) $(client eval 'return {1, nil, 3}' 0)" "3 1"
client zadd scores 9007199254740993 id 0.1 reward >/dev/null
seen "scores" "$(client zscore scores id) $(client zscore scores reward)" "9007199254740992 0.10000000000000001"
