#!/usr/bin/env bash
# litdata 0.2.76 with PyTorch 2.13.0: rows of a chunk, written by its Cache and read by StreamingDataset
#
# Guess: rows come back as they were; one that differs from the first in types, shapes or lengths is an error, as 0.5 is after 1.
# Behaviour: the bytes of an array are read with the type and dimensions of the first row: 0.5 is 4602678819172646912 after whole numbers, [1, 2] is [1, 0, 2, 0] with
# 64 bits after 32, and an array of two dimensions is flat. A list has the length of the first: [3] is [3, 0], [3, 4] is [3]. After true
# 7 is true, and bytes are a memoryview.
. "$(dirname "$0")/common.sh"
packages torch==2.13.0 numpy==2.3.4
packages lightning-utilities==0.15.2 boto3==1.43.117 filelock==3.32.7 requests==2.34.2
packages_alone litdata==0.2.76

cat >rows.py <<'PYTHON'
import tempfile
import warnings
import numpy as np
from litdata import StreamingDataset
from litdata.streaming.cache import Cache
warnings.simplefilter("ignore")
def second(*rows):
    folder = tempfile.mkdtemp(dir=".")
    cache = Cache(folder, chunk_size=4)
    for index, row in enumerate(rows):
        cache[index] = row
    cache.done()
    cache.merge()
    return list(StreamingDataset(folder))[1]
try:
    second({"a": 1}, {"a": 0.5})
except Exception as error:
    print(type(error).__name__)
array = np.array
print(second({"a": array([1])}, {"a": array([0.5])})["a"].tolist(), second({"a": array([1], dtype="int32")}, {"a": array([1, 2])})["a"].tolist())
print(second({"a": array([1, 2])}, {"a": array([[1], [2]])})["a"].tolist())
print(second([1, 2], [3]), second([1], [3, 4]))
print(second({"a": True}, {"a": 7}), type(second({"a": b"x"}, {"a": b"y"})["a"]).__name__)
PYTHON
python rows.py >out 2>errors || { cat errors >&2; exit 2; }
seen "0.5 after 1" "$(sed -n 1p out)" "error"
seen "arrays: 0.5 after 1, 64 bits after 32" "$(sed -n 2p out)" "[4602678819172646912] [1, 0, 2, 0]"
seen "an array of two dimensions after one of one" "$(sed -n 3p out)" "[1, 2]"
seen "lists: [3] after [1, 2], [3, 4] after [1]" "$(sed -n 4p out)" "[3, 0] [3]"
seen "7 after true, bytes" "$(sed -n 5p out)" "{'a': True} memoryview"
