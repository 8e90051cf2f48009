#!/usr/bin/env bash
# SkyRL-gym 0.4.0: the reward of its GSM8K environment for the right answer with a full stop behind it
#
# Guess: 1, for "#### 42." ends with the right number; a thousands separator may be a matter of taste.
# Behaviour: 0: the full stop belongs to the number. A comma within or behind it, a percent sign behind it and a second
# answer below do not matter.
. "$(dirname "$0")/common.sh"
packages skyrl-gym==0.4.0

cat >reward.py <<'END'
import skyrl_gym
def reward(answer, truth="42"):
    environment = skyrl_gym.make("gsm8k", extras={"reward_spec": {"ground_truth": truth}})
    environment.init([{"role": "user", "content": "?"}])
    return environment.step(answer)["reward"]
print(reward("#### 42."), reward("#### 42"), reward("#### 42,"), reward("#### 42%"), reward("#### 42\n#### 7"))
END
python reward.py 2>errors >out || { cat errors >&2; exit 2; }
seen '42.  42  42,  42%  42 and then 7' "$(tail -n 1 out)" "0.0 1.0 1.0 1.0 1.0"
