#!/usr/bin/env bash
# polars 2.1.0: rollouts as dicts, of which one beyond the hundredth has another type, another field or a longer list
#
# Guess: a column holds all values, or an error says that it cannot.
# Behaviour: the first 100 rows decide, and nothing is said. `DataFrame` makes a reward of 0.5 among ones 0, and drops a field
# that came later, also one within a dict. `read_ndjson` refuses 0.5, but drops fields in the same way, and after empty
# lists the texts of a list are None. With `infer_schema_length=None` all is there.
. "$(dirname "$0")/common.sh"
packages polars==2.1.0

cat >read.py <<'PYTHON'
import io
import json
import polars
def table(first, last, **how):
    return polars.DataFrame([first] * 100 + [last], **how).to_dicts()[-1]
def lines(first, last, **how):
    file = io.BytesIO("".join(json.dumps(row) + "\n" for row in [first] * 100 + [last]).encode())
    try:
        return polars.read_ndjson(file, **how).to_dicts()[-1]
    except polars.exceptions.ComputeError as error:
        return type(error).__name__
for first, last in (
    ({"reward": 1}, {"reward": 0.5}), ({"reward": 1}, {"reward": 1, "error": "timeout"}),
    ({"call": {"path": "a"}}, {"call": {"path": "a", "line": 3}}), ({"calls": []}, {"calls": ["ls"]}),
):
    print(table(first, last), lines(first, last), sep=" | ")
    print(table(first, last, infer_schema_length=None) == last, lines(first, last, infer_schema_length=None) == last)
PYTHON
python read.py >out
seen "0.5 after 100 rewards of 1: DataFrame, read_ndjson" "$(sed -n 1p out)" "{'reward': 0} | ComputeError"
seen "a field that came later" "$(sed -n 3p out)" "{'reward': 1} | {'reward': 1}"
seen "a field of a dict" "$(sed -n 5p out)" "{'call': {'path': 'a'}} | {'call': {'path': 'a'}}"
seen "a text in a list, after empty lists" "$(sed -n 7p out)" "{'calls': ['ls']} | {'calls': [None]}"
seen "the same with infer_schema_length=None" "$(sed -n '2p;4p;6p;8p' out | xargs)" "True True True True True True True True"
