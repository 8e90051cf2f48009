#!/usr/bin/env bash
# jsonlines 4.0.0: the same file, before and after orjson 3.13.0 is installed beside it
#
# Guess: a package that nothing here imports changes no results; what jsonlines writes it reads again.
# Behaviour: jsonlines imports orjson if it finds it. Then it refuses NaN, which it wrote itself, and with `skip_invalid` those
# rows are missing; integers beyond 64 bits are floats. With or without it, `iter(type=float, skip_invalid=True)` leaves out
# rewards that are written as 1 and 0.
. "$(dirname "$0")/common.sh"
packages jsonlines==4.0.0

cat >write.py <<'PYTHON'
import jsonlines
with jsonlines.open("rollouts.jsonl", "w") as file:
    file.write_all([{"id": 2**70 + 1, "reward": 0.5}, {"id": 2, "reward": float("nan")}, {"id": 3, "reward": 1.0}])
with jsonlines.open("rewards.jsonl", "w") as file:
    file.write_all([0, 1, 0.5])
PYTHON
cat >read.py <<'PYTHON'
import jsonlines
with jsonlines.open("rollouts.jsonl") as file:
    print(*(row["id"] for row in file.iter(skip_invalid=True)))
with jsonlines.open("rewards.jsonl") as file:
    print(*file.iter(type=float, skip_invalid=True))
PYTHON
python write.py
python read.py >without
packages orjson==3.13.0
python read.py >with
seen "ids without orjson" "$(sed -n 1p without)" "1180591620717411303425 2 3"
seen "ids with orjson" "$(sed -n 1p with)" "1.1805916207174113e+21 3"
seen "of the rewards 0, 1 and 0.5 those of type float, without and with it" "$(sed -n 2p without with | xargs)" "0.5"
