#!/usr/bin/env bash
# reasoning-gym 0.1.25: the reward of a right answer that ends with a line end, and of a wrong one that holds it
#
# Guess: 1 for the right number with white space around it, 0 for another number.
# Behaviour: most of its data sets give an answer in which the right one is found somewhere the share of its length: for
# 7, "7" and a line end, 17 and -7 are worth 0.5 each, and 777777 is worth less. Others take white space away first.
. "$(dirname "$0")/common.sh"
packages reasoning-gym==0.1.25

cat >score.py <<'PYTHON'
import reasoning_gym
for name in ("gcd", "chain_sum"):
    scored = reasoning_gym.create_dataset(name, seed=1, size=1)
    print(*(round(scored.score_answer(answer, {"answer": "7"}), 2) for answer in ("7", "7\n", "17", "-7", "777777", "8")))
PYTHON
python score.py 2>errors >out || { cat errors >&2; exit 2; }
seen 'gcd: 7, 7 and a line end, 17, -7, 777777, 8' "$(sed -n 1p out)" "1.0 0.5 0.5 0.5 0.17 0.0"
seen 'chain_sum: the same answers' "$(sed -n 2p out)" "1.0 1.0 0.5 0.5 0.17 0.0"
