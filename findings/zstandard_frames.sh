#!/usr/bin/env bash
# zstandard 0.25.0: a file of two frames, as from `cat a.jsonl.zst b.jsonl.zst` or from appending, read in several ways
#
# Guess: all of it, as `gzip.decompress`, `zstd -dc` and zstandard's own `open` read it; or an error about what is left over.
# Behaviour: `zstandard.decompress`, `ZstdDecompressor.decompress` and `read_to_iter` give the first frame, and say nothing.
. "$(dirname "$0")/common.sh"
packages zstandard==0.25.0

cat >frames.py <<'PYTHON'
import gzip, io, zstandard
rows = [b'{"reward": 0}\n', b'{"reward": 1}\n']
data = b"".join(map(zstandard.compress, rows))
with open("rows.jsonl.zst", "wb") as file:
    file.write(data)
decompressor = zstandard.ZstdDecompressor()
def count(text):
    return text.count(b"\n")
whole = io.BytesIO()
decompressor.copy_stream(io.BytesIO(data), whole)
print(count(gzip.decompress(b"".join(map(gzip.compress, rows)))), count(zstandard.open("rows.jsonl.zst").read()), count(whole.getvalue()))
print(count(zstandard.decompress(data)), count(decompressor.decompress(data)), count(b"".join(decompressor.read_to_iter(io.BytesIO(data)))))
PYTHON
python frames.py >out
seen "lines by gzip, zstandard.open, copy_stream" "$(sed -n 1p out)" "2 2 2"
seen "lines by zstandard.decompress, ZstdDecompressor.decompress, read_to_iter" "$(sed -n 2p out)" "1 1 1"
