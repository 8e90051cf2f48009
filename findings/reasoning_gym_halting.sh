#!/usr/bin/env bash
# reasoning-gym 0.1.25: the reward of its data set game_of_life_halting, whose answers are "True" and "False"
#
# Guess: 1 for the answer of the item, 0 for the other.
# Behaviour: both texts are converted by `bool`, so that each answer but the empty one is worth 1: policies learn nothing
# from it, and all of a group have the advantage 0.
. "$(dirname "$0")/common.sh"
packages reasoning-gym==0.1.25

cat >score.py <<'PYTHON'
import reasoning_gym
items = reasoning_gym.create_dataset("game_of_life_halting", seed=1, size=20)
print(*sorted({item["answer"] for item in items}))
for answer in ("True", "False", "perhaps", ""):
    print(answer, sum(items.score_answer(answer, item) for item in items) / len(items))
PYTHON
python score.py 2>errors >out || { cat errors >&2; exit 2; }
seen "answers of the items" "$(sed -n 1p out)" "False True"
seen "mean reward of always the same answer, the last empty" "$(sed 1d out | xargs)" "True 1.0 False 1.0 perhaps 1.0 0.0"
