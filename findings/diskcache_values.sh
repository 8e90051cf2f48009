#!/usr/bin/env bash
# diskcache 5.6.3: NaN, queues, shards, and entries that have expired
#
# Guess: values come back; a queue has what was pushed; another number of shards is a matter of speed, or an error; `len` counts what can be read.
# Behaviour: NaN comes back as None, also if `get` has a default, while [NaN] is kept. `pull` without a prefix takes entries whose keys are integers, as the reward of task 1.
# Of 100 entries of a FanoutCache of 8 shards one of 4 finds some. `Deque(rows, folder)` and `Index(folder, rows)` add the rows to those that are there.
# `len`, and a loop over the keys, have those that have expired, and `in` does not.
. "$(dirname "$0")/common.sh"
packages diskcache==5.6.3

cat >values.py <<'PYTHON'
import time
import diskcache
cache = diskcache.Cache("values")
cache["reward"], cache["rewards"] = float("nan"), [float("nan")]
print(cache["reward"], cache.get("reward", default="missing"), cache["rewards"])
rewards = diskcache.Cache("rewards")
rewards[1] = 0.5
rewards.push("task")
print(rewards.pull(), rewards.get(1))
with diskcache.FanoutCache("shards") as shards:
    for key in range(100):
        shards[f"task {key}"] = key
with diskcache.FanoutCache("shards", shards=4) as shards:
    print(0 < sum(f"task {key}" in shards for key in range(100)) < 100)
for _ in range(2):
    rows = diskcache.Deque(["a", "b"], "rows")
print(list(rows))
old = diskcache.Cache("old")
old.set("a", 1, expire=0.01)
time.sleep(0.1)
print(len(old), list(old), "a" in old)
PYTHON
python values.py >out
seen "NaN, NaN with a default, a list of NaN" "$(sed -n 1p out)" "None None [nan]"
seen "the reward of task 1 is stored, a task is pushed: pull, and the reward" "$(sed -n 2p out)" "(1, 0.5) None"
seen "some of 100 entries, and not all, are found with other shards" "$(sed -n 3p out)" True
seen "a Deque of a and b, made twice" "$(sed -n 4p out)" "['a', 'b', 'a', 'b']"
seen "an entry that has expired: len, the keys, in" "$(sed -n 5p out)" "1 ['a'] False"
