#!/usr/bin/env bash
# webdataset 1.0.2: samples whose keys have a full stop, as `sympy-1.0`, through `TarWriter` and `WebDataset`
#
# Guess: what is written is read, as the writer is told key and fields apart; or it refuses such a key.
# Behaviour: a key ends at its first full stop when it is read. Neighbours that are equal up to there become one sample, whose
# fields are `0.json` and `1.json`: there is one sample fewer, and none of both has `json`. Nothing is said.
. "$(dirname "$0")/common.sh"
packages webdataset==1.0.2 numpy==2.3.4

cat >dots.py <<'PYTHON'
import webdataset
with webdataset.TarWriter("samples.tar") as writer:
    for key in ("sympy-1.0", "sympy-1.1", "numpy"):
        writer.write({"__key__": key, "json": {"reward": 1}})
for sample in webdataset.WebDataset("samples.tar", shardshuffle=False):
    print(sample["__key__"], *sorted(name for name in sample if not name.startswith("__")))
PYTHON
python dots.py >out 2>errors || { cat errors >&2; exit 2; }
seen "samples and their fields" "$(cat out)" $'sympy-1 0.json 1.json\nnumpy json'
seen "what is said" "$(cat errors)" ""
