#!/usr/bin/env bash
# msgpack 1.2.4, ormsgpack 1.13.1 and cbor2 6.3.0: records in binary form, and read again
#
# Guess: what one function writes its counterpart reads; two records behind each other are both read, or an error; bytes stay bytes.
# Behaviour: `msgpack.packb` writes {1: "a"} without a word, and `unpackb` refuses it; ormsgpack refuses to write it; cbor2 keeps it, and (1, 2) as a key,
# though (1, 2) as a value is a list. Of two records joined, ormsgpack and cbor2 read the first, and msgpack raises. A memoryview of bytes is bytes for
# two of them, and for cbor2 a list of numbers. ormsgpack writes an enumeration, a dataclass and a date as a number, a dict and a text; the others refuse.
. "$(dirname "$0")/common.sh"
packages msgpack==1.2.4 ormsgpack==1.13.1 cbor2==6.3.0

cat >keys.py <<'PYTHON'
import dataclasses, datetime, enum
import cbor2, msgpack, ormsgpack
LIBRARIES = ((msgpack.packb, msgpack.unpackb), (ormsgpack.packb, ormsgpack.unpackb), (cbor2.dumps, cbor2.loads))
class State(enum.Enum):
    DONE = 1
@dataclasses.dataclass
class Call:
    turn: int
def seen(write, read, *values):
    try:
        data = b"".join(map(write, values))
    except Exception:
        return "not written"
    try:
        return repr(read(data))
    except Exception:
        return "not read"
for values in (({1: "a"},), ({(1, 2): (1, 2)},), ("a", "b"), (memoryview(b"ab"),), ([State.DONE, Call(7), datetime.date(2026, 1, 1)],)):
    print(*(seen(write, read, *values) for write, read in LIBRARIES), sep="; ")
PYTHON
python keys.py >out
echo "msgpack; ormsgpack; cbor2"
seen '{1: "a"}' "$(sed -n 1p out)" "not read; not written; {1: 'a'}"
seen '{(1, 2): (1, 2)}' "$(sed -n 2p out)" "not read; not written; {(1, 2): [1, 2]}"
seen '"a", and "b" behind it' "$(sed -n 3p out)" "not read; 'a'; 'a'"
seen 'a memoryview of b"ab"' "$(sed -n 4p out)" "b'ab'; b'ab'; [97, 98]"
seen "an enumeration, a dataclass and a date" "$(sed -n 5p out)" "not written; [1, {'turn': 7}, '2026-01-01']; not written"
