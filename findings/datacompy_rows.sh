#!/usr/bin/env bash
# datacompy 1.1.0: whether two results of a query have the same rows (`PandasCompare.matches`)
#
# Guess: equal values match, whole numbers exactly; two empty results match; the other methods say which part differs.
# Behaviour: 2**53 matches 2**53 + 1, 1 matches True, and the text "2026-01-01" a date; None does not match NaN, though two NaN match, and one time does not
# match itself in another zone. Two empty results do not match. `all_columns_match` and `all_rows_overlap` are true for other values, as they
# say names and keys.
. "$(dirname "$0")/common.sh"
packages datacompy==1.1.0 pandas==3.0.0

cat >compare.py <<'PYTHON'
import logging
import warnings
import datacompy
import pandas as pd
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
def compare(one, other):
    return datacompy.PandasCompare(pd.DataFrame({"key": range(len(one)), "x": one}), pd.DataFrame({"key": range(len(other)), "x": other}), join_columns="key")
def matches(*pairs):
    print(*(bool(compare(one, other).matches()) for one, other in pairs))
nan = float("nan")
matches(([2**53], [2**53 + 1]), ([1], [True]), (["2026-01-01"], [pd.Timestamp("2026-01-01")]))
matches(([nan], [nan]), ([None], [nan]), ([1], ["1"]))
noon = pd.Timestamp("2026-01-01 12:00", tz="UTC")
matches(([noon], [noon]), ([noon], [noon.tz_convert("Asia/Tokyo")]))
matches(([], []))
other = compare([1], [2])
print(other.all_columns_match(), other.all_rows_overlap(), bool(other.matches()))
PYTHON
python compare.py >out 2>errors || { cat errors >&2; exit 2; }
seen "2**53 and one more, 1 and true, a text and a date" "$(sed -n 1p out)" "True True True"
seen "NaN and NaN, None and NaN, 1 and its text" "$(sed -n 2p out)" "True False False"
seen "a time and itself, and itself in another zone" "$(sed -n 3p out)" "True False"
seen "two empty results" "$(sed -n 4p out)" "False"
seen "1 and 2: columns match, rows overlap, matches" "$(sed -n 5p out)" "True True False"
