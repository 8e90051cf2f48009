#!/usr/bin/env bash
# gymnasium 1.2.2: a space of parts, made from a dict and made from arguments
#
# Guess: the two are equal, so with the same seed they have the same samples, and the same flat observations.
# Behaviour: they are equal, but from a dict the parts are sorted by name, and from arguments they are not: samples are
# exchanged between the parts, and a flat observation has them at other places, in which a policy was not trained.
. "$(dirname "$0")/common.sh"
packages gymnasium==1.2.2

cat >spaces.py <<'PYTHON'
from gymnasium.spaces import Dict, Discrete, flatten
from_dict = Dict({"tool": Discrete(3), "budget": Discrete(3)})
from_arguments = Dict(tool=Discrete(3), budget=Discrete(3))
print(from_dict == from_arguments)
observation = {"tool": 2, "budget": 0}
for space in (from_dict, from_arguments):
    space.seed(1)
    samples = [space.sample() for _ in range(20)]
    print(*space, flatten(space, observation), [int(each["tool"]) for each in samples][:8])
PYTHON
python spaces.py >out
cat out
seen "equal" "$(sed -n 1p out)" "True"
seen "flat, from a dict" "$(grep -o -E '[a-z]+ [a-z]+ \[[0-9 ]+\]' out | sed -n 1p)" "budget tool [1 0 0 0 0 1]"
seen "flat, from arguments" "$(grep -o -E '[a-z]+ [a-z]+ \[[0-9 ]+\]' out | sed -n 2p)" "tool budget [0 0 1 1 0 0]"
seen "samples are the same" "$([ "$(sed -n '2s/.*\] //p' out)" = "$(sed -n '3s/.*\] //p' out)" ] && echo yes || echo no)" "no"
