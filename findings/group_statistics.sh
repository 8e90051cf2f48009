#!/usr/bin/env bash
# NumPy 2.3.4, pandas 3.1.1, polars 2.1.0, pyarrow 26.0.1 and DuckDB 2.0.0: mean, deviation and best of a group's rewards
#
# Guess: the same numbers from all; a reward that is not a number is left out by all or by none.
# Behaviour: of 1 and 0 the deviation is 0.5 (NumPy, pyarrow) or 0.71, of one reward 0, NaN or None. With a NaN the mean
# is NaN but in pandas; the best is 1 in pandas, polars and pyarrow, and NaN in NumPy and DuckDB. No rewards at all sum
# to 0, or to None.
. "$(dirname "$0")/common.sh"
packages numpy==2.3.4 pandas==3.1.1 polars==2.1.0 pyarrow==26.0.1 duckdb==2.0.0

cat >count.py <<'PYTHON'
import math
import warnings
import duckdb, numpy, pandas, polars, pyarrow
import pyarrow.compute
warnings.simplefilter("ignore")
def by_duckdb(function):
    return lambda rewards: duckdb.execute(f"SELECT {function}(r) FROM (SELECT unnest($1::DOUBLE[]) AS r)", [rewards]).fetchone()[0]
def by_arrow(function):
    return lambda rewards: function(pyarrow.array(rewards, pyarrow.float64())).as_py()
ways = {
    "deviation": (numpy.std, lambda r: pandas.Series(r).std(), lambda r: polars.Series(r).std(),
                  by_arrow(pyarrow.compute.stddev), by_duckdb("stddev")),
    "mean": (numpy.mean, lambda r: pandas.Series(r).mean(), lambda r: polars.Series(r).mean(),
             by_arrow(pyarrow.compute.mean), by_duckdb("avg")),
    "best": (numpy.max, lambda r: pandas.Series(r).max(), lambda r: polars.Series(r).max(),
             by_arrow(pyarrow.compute.max), by_duckdb("max")),
    "sum": (numpy.sum, lambda r: pandas.Series(r, dtype=float).sum(), lambda r: polars.Series(r, dtype=polars.Float64).sum(),
            by_arrow(pyarrow.compute.sum), by_duckdb("sum")),
}
def show(number):
    return "None" if number is None else f"{number:.2f}"
for what, rewards in (("deviation", [1.0, 0.0]), ("deviation", [1.0]), ("mean", [1.0, math.nan]), ("best", [1.0, math.nan]), ("sum", [])):
    print(*(show(way(rewards)) for way in ways[what]))
PYTHON
python count.py >out
echo "(NumPy, pandas, polars, pyarrow, DuckDB)"
seen "standard deviation of 1 and 0" "$(sed -n 1p out)" "0.50 0.71 0.71 0.50 0.71"
seen "standard deviation of 1" "$(sed -n 2p out)" "0.00 nan None 0.00 None"
seen "mean of 1 and NaN" "$(sed -n 3p out)" "nan 1.00 nan nan nan"
seen "best of 1 and NaN" "$(sed -n 4p out)" "nan 1.00 1.00 1.00 nan"
seen "sum of none" "$(sed -n 5p out)" "0.00 0.00 0.00 None None"
