#!/usr/bin/env bash
# pandas 3.1.1: log probabilities, numbers of rollouts and missing rewards through JSON, and by rows
#
# Guess: numbers come back, and what is missing stays apart from what is there.
# Behaviour: `to_json` keeps ten digits behind the point: 1e-11 is 0.0. One row without a number, and integers beyond 2**53 are
# others; `iterrows` does that as soon as another column has floats. `read_json` makes a time of a number, if its column is
# named like `started_at` or `timestamp_ms`. Rewards without a group are missing in the sums of `groupby`, and `merge` joins
# two that are missing, as SQL does not.
. "$(dirname "$0")/common.sh"
packages pandas==3.1.1

cat >through.py <<'PYTHON'
import io
import pandas
frame = pandas.DataFrame({"logprob": [1e-11, 1 / 3]})
print(*pandas.read_json(io.StringIO(frame.to_json()))["logprob"])
for text in ('[{"id": 9007199254740993}]', '[{"id": 9007199254740993}, {"id": null}]'):
    print(int(pandas.read_json(io.StringIO(text))["id"][0]))
print(*(int(row["id"]) for _, row in pandas.DataFrame({"id": [9007199254740993], "reward": [0.5]}).iterrows()))
print(*pandas.read_json(io.StringIO('[{"step": 1800000000, "started_at": 1800000000}]')).iloc[0])
print(pandas.DataFrame({"group": ["a", None], "reward": [1, 2]}).groupby("group")["reward"].sum().to_dict())
keys = pandas.DataFrame({"task": [None, "a"]})
print(len(keys.merge(keys, on="task")))
PYTHON
python through.py >out
seen "1e-11 and 1/3" "$(sed -n 1p out)" "0.0 0.33333333330000003"
seen "9007199254740993, alone and with a missing one" "$(sed -n 2,3p out | xargs)" "9007199254740993 9007199254740992"
seen "by iterrows, beside a reward" "$(sed -n 4p out)" "9007199254740992"
seen "1800000000 as step and as started_at" "$(sed -n 5p out)" "1800000000 2027-01-15 08:00:00"
seen "sums of the groups a and none" "$(sed -n 6p out)" "{'a': 1}"
seen "rows of a table with none and a, joined with itself" "$(sed -n 7p out)" "2"
