#!/usr/bin/env bash
# safetensors 0.8.0 with numpy 2.3.4: what `load` gives for what `save` was given
#
# Guess: the arrays that were saved, for the file has their shapes and types.
# Behaviour: the values of an array that is a transposed view come back in another order, in the same shape.
. "$(dirname "$0")/common.sh"
packages safetensors==0.8.0 numpy==2.3.4

cat >arrays.py <<'END'
import numpy
from safetensors.numpy import load, save
saved = numpy.arange(6).reshape(2, 3).T
loaded = load(save({"weights": saved}))["weights"]
print(saved.tolist(), loaded.tolist())
END
seen "saved, loaded" "$(python arrays.py)" "[[0, 3], [1, 4], [2, 5]] [[0, 1], [2, 3], [4, 5]]"
