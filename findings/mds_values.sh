#!/usr/bin/env bash
# mosaicml-streaming 0.13.0 (NumPy 2.3.4): values of a column in MDS, as they are encoded and decoded
#
# Guess: they come back, or are an error, as 300 is for uint8.
# Behaviour: an array whose bytes are in the other order, as >i4, is read with those of this one: 1 and 2 are 16777216 and 33554432. 0.5 is 0 as uint8, "7" is 7; 1e40 is infinity as
# float32, and 70000 as float16. True is 1 as int, and cannot be read as str_int. Keys of JSON are texts, and tuples lists. Booleans, 0 elements and one number are errors for
# ndarray, bytearray for bytes.
. "$(dirname "$0")/common.sh"
packages_alone mosaicml-streaming==0.13.0
packages numpy==2.3.4 pillow==12.0.0 typing-extensions==4.15.0

cat >values.py <<'PYTHON'
import sys
import sysconfig
import types
import numpy as np
for name in ("streaming", "streaming.base", "streaming.base.format", "streaming.base.format.mds"):  # their own would import much that these do not use
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = [sysconfig.get_path("purelib") + "/" + name.replace(".", "/")]
from streaming.base.format.mds.encodings import mds_decode, mds_encode
def back(encoding, value):
    try:
        read = mds_decode(encoding, mds_encode(encoding, value))
        return read.tolist() if isinstance(read, (np.ndarray, np.generic)) else read
    except (AttributeError, OverflowError, ValueError):
        return "error"
def show(*pairs):
    print(*(back(encoding, value) for encoding, value in pairs), sep=", ")
show(("ndarray", np.array([1, 2], dtype="<i4")), ("ndarray", np.array([1, 2], dtype=">i4")), ("ndarray", np.array([True])))
show(("uint8", 300), ("uint8", 0.5), ("uint8", "7"), ("int", 0.5), ("int", True), ("str_int", True))
show(("float32", 1e40), ("float16", 70000.0), ("bytes", bytearray(b"a")), ("json", {1: (2, 3)}))
PYTHON
python values.py >out 2>errors || { cat errors >&2; exit 2; }
seen "ndarray: [1, 2] as <i4 and >i4, [True]" "$(sed -n 1p out)" "[1, 2], [16777216, 33554432], error"
seen "uint8: 300, 0.5, \"7\"; int: 0.5, True; str_int: True" "$(sed -n 2p out)" "error, 0, 7, error, 1, error"
seen "float32: 1e40; float16: 70000; bytes: a bytearray; json: {1: (2, 3)}" "$(sed -n 3p out)" "inf, inf, error, {'1': [2, 3]}"
