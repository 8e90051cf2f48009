#!/usr/bin/env bash
# SkyRL-gym 0.4.0: the reward of its AIME environment for forms of the right answer 42
#
# Guess: 1 for a boxed 42 and for a last line that names it; a zero in front, as such contests write it, does not matter.
# Behaviour: "Answer: 42" is right, with a space within the number or a unit in LaTeX as well, and in a box behind these words. A
# box without them, bold print, a full stop, 042, a word behind it, and 300 characters behind it are -1.
. "$(dirname "$0")/common.sh"
packages skyrl-gym==0.4.0

cat >reward.py <<'PYTHON'
import skyrl_gym
truth = {"ground_truth": "42", "method": "rule"}
def reward(answer):
    environment = skyrl_gym.make("aime", extras={"reward_model": truth, "reward_spec": truth})
    environment.init([{"role": "user", "content": "?"}])
    return environment.step(answer)["reward"]
print(*map(reward, ("Answer: 42", "answer: 4 2", r"Answer: 42\text{ cm}", r"Answer: \boxed{42}", "Answer: x=42")))
print(*map(reward, (r"\boxed{42}", "**Answer: 42**", "Answer: 42.", "Answer: 042", "Answer: 42 apples", "Answer: 42\n" + "I checked it." * 30)))
PYTHON
python reward.py 2>errors >out || { cat errors >&2; exit 2; }
seen "Answer: 42, answer: 4 2, 42 with a unit in LaTeX, Answer: and a box, x=42" "$(tail -n 2 out | head -n 1)" "1.0 1.0 1.0 1.0 1.0"
seen "a box, bold, a full stop, 042, 42 apples, more text behind" "$(tail -n 1 out)" "-1.0 -1.0 -1.0 -1.0 -1.0 -1.0"
