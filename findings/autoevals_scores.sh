#!/usr/bin/env bash
# autoevals 0.4.1: JSONDiff, NumericDiff, ExactMatch and ValidJSON as scores of what an agent gives back
#
# Guess: another number or another order of rows is wrong, the order of keys does not matter, and ValidJSON says what `json.loads` says.
# Behaviour: JSONDiff compares numbers and texts by their size and letters: 100 in place of 1000 has 0.18 points, "paid" in place of "unpaid"
# 0.67, and true is 1. ExactMatch of dicts with other order of keys is 0. NumericDiff of 1 and 2 is 0.67. ValidJSON refuses 5, "text"
# and null, and takes NaN.
. "$(dirname "$0")/common.sh"
packages autoevals==0.4.1

cat >score.py <<'PYTHON'
from autoevals.json import JSONDiff, ValidJSON
from autoevals.number import NumericDiff
from autoevals.value import ExactMatch
def score(scorer, given, expected=None):
    return round(scorer().eval(given, expected).score, 2)
print(*(score(JSONDiff, *pair) for pair in (
    ({"amount": 100}, {"amount": 1000}), ({"state": "paid"}, {"state": "unpaid"}), ({"done": True}, {"done": 1}), ([1, 2], [2, 1]))))
print(score(ExactMatch, {"a": 1, "b": 2}, {"b": 2, "a": 1}), score(ExactMatch, '{"a":1}', {"a": 1}))
print(score(NumericDiff, 1, 2), score(NumericDiff, 1000, 1001), score(NumericDiff, float("nan"), 1))
print(*(score(ValidJSON, text) for text in ("5", '"text"', "null", '{"a": NaN}')))
PYTHON
python score.py 2>errors >out || { cat errors >&2; exit 2; }
seen "JSONDiff: 100 for 1000, paid for unpaid, true for 1, two rows in another order" "$(sed -n 1p out)" "0.18 0.67 1.0 0.67"
seen "ExactMatch: keys in another order; a text of JSON for a dict" "$(sed -n 2p out)" "0 1"
seen "NumericDiff: 1 for 2, 1000 for 1001, NaN for 1" "$(sed -n 3p out)" "0.67 1.0 nan"
seen 'ValidJSON: 5, "text", null, {"a": NaN}' "$(sed -n 4p out)" "0 0 0 1"
