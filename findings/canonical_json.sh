#!/usr/bin/env bash
# rfc8785 0.1.4, jcs 0.2.1, canonicaljson 2.0.0, orjson 3.13.0, msgspec 0.23.0: arguments of a call as canonical JSON, for a key
#
# Guess: what is canonical for one is for the others; other values have other texts, or raise.
# Behaviour: 1.0 is 1 for the first two and 1.0 for the others, 1e16 has three texts. For jcs the ids 9007199254740993 and 9007199254740992 are
# one text; rfc8785 raises for both, though JSON read by Python has them as they are. For orjson and msgspec NaN and infinity are null. msgspec writes a Decimal,
# bytes and a set as the text or list of the same letters. orjson with keys that are no texts writes a key twice.
. "$(dirname "$0")/common.sh"
packages rfc8785==0.1.4 jcs==0.2.1 canonicaljson==2.0.0 orjson==3.13.0 msgspec==0.23.0

cat >write.py <<'PYTHON'
import decimal
import canonicaljson, jcs, msgspec, orjson, rfc8785
writers = (
    rfc8785.dumps, jcs.canonicalize, canonicaljson.encode_canonical_json, lambda value: orjson.dumps(value, option=orjson.OPT_SORT_KEYS),
    lambda value: msgspec.json.encode(value, order="deterministic"),
)
def written(write, value):
    try:
        return write(value).decode()
    except Exception:
        return "error"
for value in (1.0, 1e16, 2**53, 2**53 + 1, float("nan"), decimal.Decimal("1.10"), b"ab", {3, 1}, {1: "a"}):
    print(*(written(write, value) for write in writers))
print(orjson.dumps({None: 1, "null": 2}, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode())
PYTHON
python write.py >out
line=0
all() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
echo "by rfc8785, jcs, canonicaljson, orjson, msgspec:"
all "1.0" "1 1 1.0 1.0 1.0"
all "1e16" "10000000000000000 10000000000000000 1e+16 1e+16 1e16"
all "9007199254740992" "error$(printf ' 9007199254740992%.0s' 1 2 3 4)"
all "9007199254740993" "error 9007199254740992 9007199254740993 9007199254740993 9007199254740993"
all "NaN" "error error error null null"
all "Decimal 1.10" 'error error error error "1.10"'
all "the bytes ab" 'error error error error "YWI="'
all "the set of 3 and 1" "error error error error [1,3]"
all "{1: a}" 'error error {"1":"a"} error error'
all "orjson's keys None and null" '{"null":1,"null":2}'
