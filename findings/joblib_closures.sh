#!/usr/bin/env bash
# joblib 1.6.0: rewards that differ by what they close over, cached on disk by `Memory.cache`
#
# Guess: other functions have other entries, or it says that it cannot tell them apart.
# Behaviour: an entry is found by the function's name, its source and its arguments. What it closes over is no part of it: a reward with the
# limit 1 returns what that with the limit 5 returned, also in a later run, without a word. A default
# value is a part of it.
. "$(dirname "$0")/common.sh"
packages joblib==1.6.0

cat >rewards.py <<'PYTHON'
import sys
from joblib import Memory
memory = Memory("cache", verbose=0)
def make(limit):
    @memory.cache
    def reward(length):
        return length <= limit
    return reward
def make_default(limit):
    @memory.cache
    def reward_of(length, weights={"limit": limit}):
        return length <= weights["limit"]
    return reward_of
limits = [int(each) for each in sys.argv[1:]]
print(*(make(limit)(3) for limit in limits))
print(*(make_default(limit)(3) for limit in limits))
PYTHON
run() { python rewards.py "$@" 2>errors; }
run 5 1 >out
seen "length 3, limits 5 and 1" "$(sed -n 1p out)" "True True"
seen "with the limit as a default value" "$(sed -n 2p out)" "True False"
seen "what is said of closures" "$(cat errors)" ""
seen "limit 1, in a later run" "$(run 1 | sed -n 1p)" "True"
rm -r cache
seen "limit 1, without the cache" "$(run 1 | sed -n 1p)" "False"
