#!/usr/bin/env bash
# reasoning-gym 0.1.25: data sets with the seeds 42 and 43, one for training and one for evaluation
#
# Guess: another seed, other items; or as good as none in common.
# Behaviour: the item at place i is made from the seed plus i, so that item 1 of seed 42 is item 0 of seed 43: of 50 items
# 49 are in both. A composite does the same. An index beyond the size, or below 0, is an item, too, and no error.
. "$(dirname "$0")/common.sh"
packages reasoning-gym==0.1.25

cat >seeds.py <<'PYTHON'
import reasoning_gym
from reasoning_gym.composite import DatasetSpec
def common(*seeds, name="chain_sum", **options):
    sets = [reasoning_gym.create_dataset(name, seed=seed, size=50, **options) for seed in seeds]
    one, other = ({item["question"] for item in each} for each in sets)
    return len(one & other)
mixture = [DatasetSpec("chain_sum", 1, {}), DatasetSpec("gcd", 1, {})]
print(common(42, 43), common(42, 142), common(42, 43, name="composite", datasets=mixture))
small = reasoning_gym.create_dataset("chain_sum", seed=42, size=1)
large = reasoning_gym.create_dataset("chain_sum", seed=42, size=9)
print(len(small), small[8]["question"] == large[8]["question"])
PYTHON
python seeds.py 2>errors >out || { cat errors >&2; exit 2; }
seen "items in common: seeds 42 and 43, 42 and 142, composites of 42 and 43" "$(sed -n 1p out)" "49 0 49"
seen "size 1: its length, and whether it has the item at place 8 of size 9" "$(sed -n 2p out)" "1 True"
