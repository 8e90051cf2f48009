#!/usr/bin/env bash
# tianshou 2.0.1 with PyTorch 2.13.0: steps in its ReplayBuffer
#
# Guess: what is stored comes back, or is an error, as it is for None; a place without a step is an error.
# Behaviour: the first step decides on types and shapes: after the observation 1 comes 0 for 0.5, after true 7 is true, and after the list [1, 2] the list [3]
# is [3, 3]. A field that a step lacks is 0. A buffer with one step has a second one, and a last one, all zeros. Of two parts that are
# stacked, the one without a field has 0 there. Batch(a=1) is not equal to Batch(a=1.0).
. "$(dirname "$0")/common.sh"
packages torch==2.13.0 numpy==2.3.4
packages tianshou==2.0.1

cat >steps.py <<'PYTHON'
import warnings
from tianshou.data import Batch, ReplayBuffer
warnings.simplefilter("ignore")
def stored(*steps):
    buffer = ReplayBuffer(4)
    for step in steps:
        buffer.add(Batch(**{"obs": 0, "act": 0, "rew": 0.0, "terminated": False, "truncated": False, "obs_next": 0, "info": {}} | step))
    return buffer
print(stored({"obs": 1}, {"obs": 0.5}).obs[:2].tolist(), stored({"info": {"a": True}}, {"info": {"a": 7}}).info.a[:2].tolist())
print(stored({"info": {"a": [1, 2]}}, {"info": {"a": [3]}}).info.a[:2].tolist())
print(stored({"info": {"a": 1}}, {"info": {"b": 2}}).info.a[:2].tolist())
try:
    stored({"info": {"a": 3}}, {"info": {"a": None}})
except TypeError as error:
    print(type(error).__name__)
one = stored({"obs": 5})
print(len(one), one[1].obs, one[-1].obs)
print(Batch.stack([Batch(a=1, b=2), Batch(a=3)]).b.tolist(), Batch(a=1) == Batch(a=1.0))
PYTHON
python steps.py >out 2>errors || { cat errors >&2; exit 2; }
seen "the observation 0.5 after 1, 7 after true" "$(sed -n 1p out)" "[1, 0] [True, True]"
seen "a list of one after a list of two" "$(sed -n 2p out)" "[[1, 2], [3, 3]]"
seen "a field that the second step lacks" "$(sed -n 3p out)" "[1, 0]"
seen "None after 3" "$(sed -n 4p out)" "TypeError"
seen "one step: length, the second one, the last one" "$(sed -n 5p out)" "1 0 0"
seen "stacked without a field; 1 and 1.0" "$(sed -n 6p out)" "[2, 0] False"
