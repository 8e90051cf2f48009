#!/usr/bin/env bash
# bash 5.2.15 (of the system): a script that sets RANDOM=42, so that it does the same each time
#
# Guess: all its numbers are the same in each run, those of $(...), pipes and background jobs, too.
# Behaviour: each subshell is seeded anew, from the time and its process's number: only what the script itself draws is the same.
# One that assigns RANDOM itself has its own numbers. `$SRANDOM` and the order of `shuf` are not touched by it.
. "$(dirname "$0")/common.sh"
bash --version | sed -n 1p

cat >draw.sh <<'END'
RANDOM=42
draw() { echo $((RANDOM)); }
echo "itself $RANDOM $RANDOM"
echo "substitution $(draw) $(draw)"
echo "pipe $( (draw; draw) | xargs)"
echo "assigned $(RANDOM=42; draw; draw)" | xargs
END
runs() { for _ in 1 2 3 4; do bash draw.sh; sleep 0.05; done >out; }
runs
different() { grep "^$1 " out | sort -u | wc -l; }
seen "itself: different lines in 4 runs" "$(different itself)" 1
seen "substitution: different ones" "$([ "$(different substitution)" -gt 1 ] && echo yes)" yes
seen "pipe: different ones" "$([ "$(different pipe)" -gt 1 ] && echo yes)" yes
seen "assigned there" "$(grep -c 'assigned 17772' out)" 4
