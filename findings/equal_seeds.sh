#!/usr/bin/env bash
# NumPy 2.3.4 and Python 3.11.7: generators whose seeds are lists of numbers, such as [seed, group, rollout], or negative
#
# Guess: other lists are other seeds, and so are 1 and -1.
# Behaviour: up to four numbers, zeros at the end do not count: the first rollout of the first group has the numbers of the
# trainer's own generator. With a fifth it has those of the first child by `spawn`. [5, 1] is 2**32 + 5. For Python's
# `random` -1 is 1.
. "$(dirname "$0")/common.sh"
packages numpy==2.3.4

cat >seeds.py <<'PYTHON'
import random
import numpy
def drawn(seed):
    return int(numpy.random.default_rng(seed).integers(2**62))
print(drawn([1, 0]) == drawn(1), drawn([1, 0, 0, 0]) == drawn(1), drawn([1, 0, 0, 0, 0]) == drawn(1), drawn([0, 1]) == drawn(1))
child = numpy.random.SeedSequence(1).spawn(1)[0]
print(drawn([1, 0, 0, 0, 0]) == drawn(child), drawn([5, 1]) == drawn(2**32 + 5))
print(random.Random(-1).random() == random.Random(1).random())
PYTHON
python seeds.py >out
seen "1 is [1, 0], [1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 1]" "$(sed -n 1p out)" "True True False False"
seen "[1, 0, 0, 0, 0] is the first child of 1, [5, 1] is 2**32 + 5" "$(sed -n 2p out)" "True True"
seen "-1 is 1 for random" "$(sed -n 3p out)" "True"
