#!/usr/bin/env bash
# NumPy 2.3.4: a generator that was continued from a checkpoint by `bit_generator.state`, and its children by `spawn`
#
# Guess: all goes on as it would have: the next child has the numbers that it would have had.
# Behaviour: its own numbers go on, but the count of its children is no part of the state: the next child is the first
# one again, so that environments get the seeds of the first ones; if the generator was made with another seed, that
# one counts for children. A pickled generator keeps the count.
. "$(dirname "$0")/common.sh"
packages numpy==2.3.4

cat >resume.py <<'PYTHON'
import pickle
import numpy
def child(generator):
    return int(generator.spawn(1)[0].integers(10**6))
running = numpy.random.default_rng(1)
first, second = child(running), child(running)
state, pickled = running.bit_generator.state, pickle.dumps(running)
third, own = child(running), int(running.integers(10**6))
resumed = numpy.random.default_rng(1)
resumed.bit_generator.state = state
names = {first: "first", second: "second", third: "third"}
print(names[child(resumed)], int(resumed.integers(10**6)) == own)
other = numpy.random.default_rng(2)
other.bit_generator.state = state
print(child(other) == child(numpy.random.default_rng(2)))
print(names[child(pickle.loads(pickled))])
PYTHON
python resume.py >out
seen "the child after the second, and whether its own numbers go on" "$(sed -n 1p out)" "first True"
seen "made with another seed: whether the child is that seed's" "$(sed -n 2p out)" "True"
seen "the child after the second, of a pickled generator" "$(sed -n 3p out)" "third"
