#!/usr/bin/env bash
# Minari 0.5.4: data sets of rollouts (its episodes), filtered, combined, and with values that do not fit
#
# Guess: a filtered data set is one of those rollouts; actions and observations outside of their spaces, or too many of them, are an error; texts come back.
# Behaviour: `combine_datasets` takes the filtered ones in again, and writes them. Action 99 and 1.7 of Discrete(9), observations beyond their
# box, more actions than rewards, and a rollout that neither ends nor is cut off are stored. Texts come back as texts where a space says so, and as
# bytes in infos, which may have fewer values than the rollout has steps; a None there is an error.
. "$(dirname "$0")/common.sh"
packages minari==0.5.4 gymnasium==1.4.0 numpy==2.4.6 h5py==3.16.0 pillow==12.0.0
export MINARI_DATASETS_PATH=$work/data

cat >episodes.py <<'PYTHON'
import warnings
import minari
import numpy as np
from gymnasium.spaces import Box, Discrete, Text
from minari.data_collector.episode_buffer import EpisodeBuffer
warnings.simplefilter("ignore")
def data(name, *episodes, observations=Box(-9, 9, (1,), np.float32), actions=Discrete(9)):
    return minari.create_dataset_from_buffers(
        dataset_id=f"{name}-v0", buffer=list(episodes), observation_space=observations, action_space=actions, eval_env=None, expert_policy=None
    )
def episode(number=0, seen=(0, 1), actions=(1,), reward=1.0, ended=True, infos=None):
    seen = list(seen) if isinstance(seen[0], str) else [np.array([each], np.float32) for each in seen]
    return EpisodeBuffer(
        id=number, observations=seen, actions=list(actions), rewards=[reward], terminations=[ended], truncations=[False], infos=infos or {}
    )
runs = data("runs", *(episode(number, reward=float(number)) for number in range(3)))
good = runs.filter_episodes(lambda each: each.rewards[0] > 0)
more = data("more", episode(reward=9.0))
print(len(good), [float(each.rewards[0]) for each in good.iterate_episodes()], [float(each.rewards[0]) for each in minari.combine_datasets([good, more], "all-v0").iterate_episodes()])
one = data("outside", episode(seen=(100, 200), actions=(99, 1.7), ended=False))[0]
print(one.observations.ravel().tolist(), one.actions.tolist(), len(one), one.terminations.tolist(), one.truncations.tolist())
one = data("texts", episode(seen=("a", "b"), actions=("ls",), infos={"said": ["x", "y"], "count": [1]}), observations=Text(9), actions=Text(9))[0]
print(one.observations, one.actions, one.infos["said"].tolist(), one.infos["count"].tolist())
try:
    data("none", episode(infos={"count": [1, None]}))
except TypeError as error:
    print(type(error).__name__)
PYTHON
python episodes.py >out 2>errors || { cat errors >&2; exit 2; }
seen "rewards: two filtered, and combined with one of 9" "$(sed -n 1p out)" "2 [1.0, 2.0] [0.0, 1.0, 2.0, 9.0]"
seen "outside of the spaces: observations, actions, steps, whether it ends or is cut off" "$(sed -n 2p out)" "[100.0, 200.0] [99.0, 1.7] 1 [False] [False]"
seen "texts as observations and actions, texts and one number in infos" "$(sed -n 3p out)" "['a', 'b'] ['ls'] [b'x', b'y'] [1]"
seen "None in infos" "$(sed -n 4p out)" "TypeError"
