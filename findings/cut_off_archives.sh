#!/usr/bin/env bash
# zstandard 0.25.0, Python 3.11.7's tarfile and GNU tar 1.34 (of the system): a file of which the end is missing, as after a full disk
#
# Guess: an error, as the end of such a file is marked.
# Behaviour: zstandard's `open`, `stream_reader` and `copy_stream` return what is there, as if it were all; lz4 and gzip raise EOFError.
# tarfile and GNU tar unpack the members before the cut without a word, if it lies between two of them, or within a header; within
# the contents of a member it is an error for both.
. "$(dirname "$0")/common.sh"
packages zstandard==0.25.0 lz4==4.4.5
needs tar
tar --version | sed -n 1p

cat >cut.py <<'PYTHON'
import gzip
import io
import random
import sys
import tarfile
import lz4.frame
import zstandard
data = random.Random(1).randbytes(300000)
def read(reader, packed):
    try:
        return len(reader(io.BytesIO(packed[:200000])).read())
    except EOFError as error:
        return type(error).__name__
def copied(file):
    result = io.BytesIO()
    zstandard.ZstdDecompressor().copy_stream(file, result)
    result.seek(0)
    return result
packed = zstandard.compress(data)
readers = zstandard.open, zstandard.ZstdDecompressor().stream_reader, copied
print(*(199000 < read(reader, packed) < 200000 for reader in readers), read(lz4.frame.open, lz4.frame.compress(data)), read(gzip.open, gzip.compress(data)))
with tarfile.open("whole.tar", "w") as archive:
    for name in ("a", "b"):
        member = tarfile.TarInfo(name)
        member.size = 600
        archive.addfile(member, io.BytesIO(data[:600]))
whole = open("whole.tar", "rb").read()
for size in (1536, 1600, 2100):
    with open(f"{size}.tar", "wb") as file:
        file.write(whole[:size])
    try:
        with tarfile.open(f"{size}.tar") as archive:
            archive.extractall("unpacked", filter="data")
            print(archive.getnames())
    except tarfile.ReadError as error:
        print(error)
PYTHON
python cut.py >out
seen "part of the data by open, stream_reader, copy_stream of zstandard; lz4, gzip" "$(sed -n 1p out)" "True True True EOFError EOFError"
status() { tar xf "$1" 2>said && echo 0 || echo $?; }
seen "tarfile, and status of GNU tar: cut behind the first member" "$(sed -n 2p out) $(status 1536.tar)" "['a'] 0"
seen "cut in the header of the second" "$(sed -n 3p out) $(status 1600.tar)" "['a'] 0"
seen "cut in its contents" "$(sed -n 4p out) $(status 2100.tar)" "unexpected end of data 2"
