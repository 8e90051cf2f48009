#!/usr/bin/env bash
# gymnasium 1.4.0 (NumPy 2.4.6): what `SyncVectorEnv` says of each environment, where they give numbers of other types
#
# Guess: each value as its environment gave it, or an array of a type for all; the rewards of the step behind an end are those of a new episode.
# Behaviour: the first environment that gives a key decides on its type: after 1, the shares 0.5 and 0.75 are 0; after True, 2 and 0.5 are
# True; in another order they stay. A count that an environment does not give is 0, and only the key `_tests` tells. The action behind
# the end of an episode is dropped, with reward 0. `AsyncVectorEnv` is alike.
. "$(dirname "$0")/common.sh"
packages gymnasium==1.4.0 numpy==2.4.6

cat >infos.py <<'PYTHON'
import gymnasium, numpy
shares, flags = (1, 0.5, 0.75), (True, 2, 0.5)
class Task(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(10), gymnasium.spaces.Discrete(10)
    def __init__(self, number, order):
        self.number, self.order = number, order
    def reset(self, seed=None, options=None):
        self.steps = 0
        return 0, {}
    def step(self, action):
        self.steps += 1
        given = self.order[self.number]
        info = {"share": shares[given], "ok": flags[given]} | ({"tests": 3} if self.number == 1 else {})
        return self.steps, float(action), self.steps == 2, False, info
if __name__ == "__main__":
    for kind in (gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv):
        for order in ((0, 1, 2), (1, 0, 2)):
            tasks = kind([lambda number=number: Task(number, order) for number in range(3)])
            tasks.reset()
            info = tasks.step(numpy.array([7, 7, 7]))[4]
            print(info["share"].tolist(), info["ok"].tolist(), info["tests"].tolist(), info["_tests"].tolist())
            steps = [tasks.step(numpy.array([7, 7, 7])) for _ in range(3)]
            print([(step[0].tolist()[0], step[1].tolist()[0], step[2].tolist()[0]) for step in steps])
            tasks.close()
PYTHON
python infos.py 2>errors >out || { cat errors >&2; exit 2; }
line=0
for kind in SyncVectorEnv AsyncVectorEnv; do
    for order in "[1, 0, 0] [True, True, True]" "[0.5, 1.0, 0.75] [2, 1, 0]"; do
        line=$((line + 2))
        seen "$kind: shares and flags; tests, which only the second gives" "$(sed -n $((line - 1))p out)" "$order [0, 3, 0] [False, True, False]"
        seen "the first: observation, reward and end, after two to four steps" "$(sed -n ${line}p out)" "[(2, 7.0, True), (0, 0.0, False), (1, 7.0, False)]"
    done
done
