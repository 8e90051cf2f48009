#!/usr/bin/env bash
# h5py 3.16.0 with numpy 2.4.6: token ids, labels and rewards that are written into a file of a narrower type
#
# Guess: an error, or what NumPy's `astype` makes of them.
# Behaviour: numbers stop at the ends of the type, without a word: token 70000 in uint16 is token 65535, the label -100 is token 0, and of an
# array of floats fractions are cut off. Only a Python list with such a number is an error. NaN as int32 is the least number.
. "$(dirname "$0")/common.sh"
packages h5py==3.16.0 numpy==2.4.6

cat >write.py <<'PYTHON'
import warnings
import h5py
import numpy
warnings.simplefilter("error")
with h5py.File("tokens.h5", "w") as file:
    def write(kind, values):
        data = file.create_dataset(str(len(file)), (len(values),), dtype=kind)
        try:
            data[:] = values
        except OverflowError:
            return "OverflowError"
        return data[:].tolist()
    tokens = numpy.array([70000, -100, 5])
    print(write("uint16", tokens), tokens.astype("uint16").tolist(), write("uint16", [70000, -100, 5]))
    print(write("int8", numpy.array([300.0, -300.0, 0.9])))
    print(write("int32", numpy.array([numpy.nan, numpy.inf])))
    print(write("float16", numpy.array([100000.0, 1e-8])))
PYTHON
python write.py >out
seen "70000, -100 and 5 as uint16: an array, by astype, and a list" "$(sed -n 1p out)" "[65535, 0, 5] [4464, 65436, 5] OverflowError"
seen "300.0, -300.0 and 0.9 as int8" "$(sed -n 2p out)" "[127, -128, 0]"
seen "NaN and infinity as int32" "$(sed -n 3p out)" "[-2147483648, 2147483647]"
seen "100000.0 and 1e-8 as float16" "$(sed -n 4p out)" "[inf, 0.0]"
