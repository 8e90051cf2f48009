#!/usr/bin/env bash
# pandas 3.1.1: dates as texts, and filters of columns in which a value is missing
#
# Guess: a text is the same date in each column; `!=` of a missing value is the same for each type.
# Behaviour: the first row decides how the others are read: 01/02/2026 is 2 January, and 1 February below 13/02/2026; what does not
# fit is missing with `errors="coerce"`, also a day below a time. A row without a reward passes `reward != 0` with float64, and not
# with Float64. `isin([None])` finds missing texts, and no missing numbers.
. "$(dirname "$0")/common.sh"
packages pandas==3.1.1

cat >read.py <<'PYTHON'
import pandas
def days(*texts):
    return [None if pandas.isna(date) else date.strftime("%d %b") for date in pandas.to_datetime(pandas.Series(texts), errors="coerce")]
print(days("01/02/2026"), days("13/02/2026", "01/02/2026"), days("01/02/2026", "13/02/2026"), days("2026-02-01 10:00", "2026-02-01"))
for kind in ("float64", "Float64"):
    rewards = pandas.Series([1.0, None, 0.0], dtype=kind)
    table = pandas.DataFrame({"task": ["a", "b", "c"], "reward": rewards})
    print(list(table[table["reward"] != 0]["task"]), rewards.isin([None]).tolist())
print(pandas.Series(["a", None]).isin([None]).tolist())
PYTHON
python read.py 2>log >out
seen "dates" "$(sed -n 1p out)" "['02 Jan'] ['13 Feb', '01 Feb'] ['02 Jan', None] ['01 Feb', None]"
seen "float64: tasks with another reward than 0; found as None" "$(sed -n 2p out)" "['a', 'b'] [False, False, False]"
seen "Float64" "$(sed -n 3p out)" "['a'] [False, False, False]"
seen "texts that are None" "$(sed -n 4p out)" "[False, True]"
