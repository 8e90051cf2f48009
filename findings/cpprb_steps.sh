#!/usr/bin/env bash
# cpprb 11.0.0: steps in its replay buffer
#
# Guess: the state after n steps is of the same rollout, at its end the last one, and `done` is set where the n steps reach the end; a step that raises is not
# stored; a value that its type cannot hold raises.
# Behaviour: with Nstep, the last steps of each rollout have states of ones, and `done` is 0 for the step whose n steps end the rollout; without
# on_episode_end they have states of the next rollout. A step that raises for its shape is a row all the same, of ones.
# Into int32 goes 2.7 as 2, and into int8 300 as 44; a field that the buffer does not know is dropped.
. "$(dirname "$0")/common.sh"
packages cpprb==11.0.0 numpy==2.4.6

cat >steps.py <<'PYTHON'
import numpy as np
from cpprb import ReplayBuffer
def shown(buffer, *names):
    print(*(f"{name} " + " ".join(f"{value:g}" for value in buffer.get_all_transitions()[name].ravel()) for name in names), sep=", ")
for ends in (True, False):
    fields = {"state": {}, "reward": {}, "next_state": {}, "done": {}}
    buffer = ReplayBuffer(10, fields, Nstep={"size": 3, "gamma": 1.0, "rew": "reward", "next": "next_state"})
    for episode in (20, 30):
        for state in range(episode, episode + 4):
            buffer.add(state=state, reward=1, next_state=state + 1, done=state == episode + 3)
        if ends:
            buffer.on_episode_end()
    shown(buffer, "state", "reward", "next_state", "done")
buffer = ReplayBuffer(4, {"state": {"shape": 2}, "reward": {}})
for state in ([1, 2], [5, 6, 7, 8], [3, 4]):
    try:
        buffer.add(state=state, reward=state[0])
    except ValueError:
        pass
shown(buffer, "state", "reward")
buffer = ReplayBuffer(4, {"action": {"dtype": np.int32}, "tool": {"dtype": np.int8}})
buffer.add(action=2.7, tool=300, reward=1)
shown(buffer, "action", "tool")
print(*buffer.get_all_transitions())
PYTHON
python steps.py >out
seen "two rollouts from 20 to 24 and from 30 to 34, three steps each" "$(sed -n 1p out)" \
    "state 20 21 22 23 30 31 32 33, reward 3 3 2 1 3 3 2 1, next_state 23 24 1 1 33 34 1 1, done 0 0 1 1 0 0 1 1"
seen "without on_episode_end" "$(sed -n 2p out)" "state 20 21 22 23 30 31, reward 3 3 2 1 3 3, next_state 23 24 31 32 33 34, done 0 0 1 1 0 0"
seen "states 1 2, a step that raises, 3 4" "$(sed -n 3p out)" "state 1 2 1 1 3 4, reward 1 1 3"
seen "2.7 and 300" "$(sed -n 4p out)" "action 2, tool 44"
seen "fields of a step with action, tool and reward" "$(sed -n 5p out)" "action tool"
