#!/usr/bin/env bash
# pyarrow 26.0.1: a folder with one Parquet file of rollouts for each part or run, read as one table
#
# Guess: all rows with all columns, in the order of the parts, and the names of runs as they are.
# Behaviour: the columns are those of the first file; one that is only in later files is not there. Files whose names begin with
# `_` or `.` are left out. part-10 comes before part-2. `run=007` is the number 7, but a text as soon as one other run has a
# name that is no number; with integers in the first file, a reward of 0.5 in the second is an error.
. "$(dirname "$0")/common.sh"
packages pyarrow==26.0.1

cat >read.py <<'PYTHON'
import pathlib
import pyarrow
import pyarrow.parquet
def folder(**files):
    root = pathlib.Path(f"folder-{len(list(pathlib.Path().iterdir()))}")
    for name, row in files.items():
        path = root / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    try:
        return pyarrow.parquet.read_table(root).to_pylist()
    except pyarrow.ArrowInvalid as error:
        return type(error).__name__
print(folder(a={"reward": 1}, b={"reward": 0, "error": "timeout"}))
print(folder(_failed={"reward": 0}, solved={"reward": 1}))
print([row["n"] for row in folder(**{f"part-{n}": {"n": n} for n in (1, 2, 10)})])
for other in ("010", "retry"):
    print([row["run"] for row in folder(**{f"run={run}/rows": {"reward": 1} for run in ("007", other)})])
print(folder(a={"reward": 1}, b={"reward": 0.5}))
PYTHON
python read.py >out
seen "the second file has an error" "$(sed -n 1p out)" "[{'reward': 1}, {'reward': 0}]"
seen "_failed and solved" "$(sed -n 2p out)" "[{'reward': 1}]"
seen "parts 1, 2 and 10" "$(sed -n 3p out)" "[1, 10, 2]"
seen "runs 007 and 010" "$(sed -n 4p out)" "[7, 10]"
seen "runs 007 and retry" "$(sed -n 5p out)" "['007', 'retry']"
seen "rewards of 1 and 0.5" "$(sed -n 6p out)" "ArrowInvalid"
