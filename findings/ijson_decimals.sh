#!/usr/bin/env bash
# ijson 3.6.0: rewards and keys of a file that is read piece by piece
#
# Guess: the values are those of `json`, and a path names one place.
# Behaviour: what has a point or an exponent is a `Decimal`: a reward of 0.1 is not equal to 0.1, adding it to a float is an
# error, and a dict with it is another one. A path of `a.b` names the key "a.b", too, and "item" names elements of a list and
# a key of that name. With `use_float=True` the values are those of `json`.
. "$(dirname "$0")/common.sh"
packages ijson==3.6.0

cat >read.py <<'PYTHON'
import io
import json
import ijson
def items(text, path, **how):
    return list(ijson.items(io.BytesIO(text.encode()), path, **how))
text = '{"rows": [{"reward": 0.1}, {"reward": 0.5}]}'
print(*(a == b for a, b in zip(items(text, "rows.item"), json.loads(text)["rows"])))
print(items(text, "rows.item", use_float=True) == json.loads(text)["rows"])
try:
    print(sum(items(text, "rows.item.reward"), 0.0))
except TypeError as error:
    print(type(error).__name__)
print(*items('{"files": {"main.py": {"lines": 3}, "main": {"py": {"lines": 5}}}}', "files.main.py.lines"))
print(*items('[["ls"], {"item": "cd"}]', "item.item"))
PYTHON
python read.py >out
seen "0.1 and 0.5 are equal to those of json" "$(sed -n 1p out)" "False True"
seen "with use_float=True" "$(sed -n 2p out)" "True"
seen "their sum" "$(sed -n 3p out)" "TypeError"
seen "files.main.py.lines" "$(sed -n 4p out)" "3 5"
seen "item.item" "$(sed -n 5p out)" "ls cd"
