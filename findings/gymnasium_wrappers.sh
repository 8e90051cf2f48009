#!/usr/bin/env bash
# gymnasium 1.4.0: NormalizeReward, TimeLimit, and the spaces Text and Box
#
# Guess: equal rewards stay equal, or nearly so; an episode that is cut off is over; `Text(100)` has texts of up to 100 characters, Box(0, 1) 0 and 1.
# Behaviour: NormalizeReward makes 70.7, 2.0 and 2.1 of the first three rewards of 1, and 1.3 later. A step behind the limit of TimeLimit is taken, and
# is cut off again, so that a last step can be both terminated and truncated. Text has only letters and digits by default, at least one: neither
# "a b" nor "". A Box of 32 bits has the list [0, 1] of whole numbers, and neither of the arrays [0, 1] and [0.0, 1.0]; a Discrete has no 3.0.
. "$(dirname "$0")/common.sh"
packages gymnasium==1.4.0 numpy==2.4.6

cat >wrappers.py <<'PYTHON'
import gymnasium, numpy
from gymnasium.spaces import Box, Discrete, Text
from gymnasium.wrappers import NormalizeReward, TimeLimit
class Task(gymnasium.Env):
    observation_space, action_space = Discrete(10), Discrete(2)
    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return 0, {}
    def step(self, action):
        self.turn += 1
        return self.turn, 1.0, self.turn == 3, False, {}
task = NormalizeReward(Task())
for _ in range(3):
    task.reset()
    print(*(f"{task.step(0)[1]:.2f}" for _ in range(3)))
task = TimeLimit(Task(), 2)
task.reset()
print([task.step(0)[:4] for _ in range(3)])
print(*(Text(100).contains(text) for text in ("ab", "a b", "")))
box = Box(0, 1, (2,))
print(*(box.contains(value) for value in ([0, 1], numpy.array([0, 1]), numpy.array([0.0, 1.0]))), Discrete(5).contains(3.0))
PYTHON
python wrappers.py 2>errors >out || { cat errors >&2; exit 2; }
seen "three rewards of 1, by NormalizeReward" "$(sed -n 1p out)" "70.71 2.02 2.14"
seen "those of the second episode" "$(sed -n 2p out)" "2.02 1.36 1.36"
seen "those of the third" "$(sed -n 3p out)" "1.45 1.30 1.29"
seen "three steps with a limit of two: observation, reward, terminated, truncated" "$(sed -n 4p out)" \
    "[(1, 1.0, False, False), (2, 1.0, False, True), (3, 1.0, True, True)]"
seen 'Text(100) has "ab", "a b", ""' "$(sed -n 5p out)" "True False False"
seen "Box(0, 1) has [0, 1], and the arrays of 0 and 1, 0.0 and 1.0; Discrete(5) has 3.0" "$(sed -n 6p out)" "True False False False"
