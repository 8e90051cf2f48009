#!/usr/bin/env bash
# NumPy 2.4.6 and Python 3.11.7: `copy.copy` of a generator, as of a part of an environment that is saved before a branch
#
# Guess: the copy stands where the original stood, and both go on alone, as two objects of Python's `random.Random` do.
# Behaviour: both draw from one stream: the copy gets the number that would have been the original's next one, so that neither
# branch has the numbers that it has alone. The same holds for `copy.copy` of an object that holds the generator.
# `RandomState` does so, too. `random.Random` is copied, and so is the generator by `copy.deepcopy`.
. "$(dirname "$0")/common.sh"
packages numpy==2.4.6

cat >copies.py <<'PYTHON'
import copy, random
import numpy as np
def drawn(generator, make):
    other = make(generator)
    return [round(one.random(), 3) for one in (generator, other, generator)]
print([round(value, 3) for value in np.random.default_rng(1).random(3).tolist()])
print(drawn(np.random.default_rng(1), copy.copy))
print(drawn(np.random.default_rng(1), copy.deepcopy))
print(drawn(np.random.RandomState(1), copy.copy))
print(drawn(random.Random(1), copy.copy))
PYTHON
python copies.py >out
seen "the stream" "$(sed -n 1p out)" "[0.512, 0.95, 0.144]"
seen "original, copy, original" "$(sed -n 2p out)" "[0.512, 0.95, 0.144]"
seen "with a deep copy" "$(sed -n 3p out)" "[0.512, 0.512, 0.95]"
seen "RandomState" "$(sed -n 4p out)" "[0.417, 0.72, 0.0]"
seen "random.Random" "$(sed -n 5p out)" "[0.134, 0.134, 0.847]"
