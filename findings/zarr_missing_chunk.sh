#!/usr/bin/env bash
# zarr 3.1.5 with numpy 2.3.4: an array of token ids, of which the file of one chunk was not copied
#
# Guess: reading it is an error, as a part of what was written is missing.
# Behaviour: the part reads as the fill value, 0, which is a token, and nothing is said: a chunk of nothing but zeros is not
# written in the first place, so that a missing one cannot be told from it, unless `write_empty_chunks` was set and one counts.
. "$(dirname "$0")/common.sh"
packages zarr==3.1.5 numpy==2.3.4

cat >chunks.py <<'PYTHON'
import os, warnings, numpy, zarr
warnings.simplefilter("error")
tokens = numpy.array([5, 6, 7, 8, 0, 0], dtype="int32")
for name, config in ("plain", {}), ("all", {"write_empty_chunks": True}):
    zarr.create_array(name, data=tokens, chunks=(2,), config=config)
    print(*sorted(os.listdir(f"{name}/c")))
    os.remove(f"{name}/c/1")
    array = zarr.open_array(name, mode="r")
    print(array[:].tolist(), array.nchunks_initialized, array.nchunks)
PYTHON
python chunks.py >out 2>errors || { cat errors >&2; exit 2; }
seen "files of the chunks [5, 6], [7, 8] and [0, 0]" "$(sed -n 1p out)" "0 1"
seen "without the file 1: the array, chunks that are there, chunks" "$(sed -n 2p out)" "[5, 6, 0, 0, 0, 0] 1 3"
seen "the same where empty chunks are written" "$(sed -n 3,4p out | paste -sd' ')" "0 1 2 [5, 6, 0, 0, 0, 0] 2 3"
seen "what is said" "$(cat errors)" ""
