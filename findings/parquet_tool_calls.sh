#!/usr/bin/env bash
# pyarrow 21.0.0: records of tool calls as a table, the format in which trainers keep them
#
# Guess: what goes in by `Table.from_pylist` comes out by `to_pylist`.
# Behaviour: each call has the arguments of all calls, those of others as None, so that a chat template prints them; and
# a column that the first record lacks is dropped without a word.
. "$(dirname "$0")/common.sh"
packages pyarrow==21.0.0

cat >calls.py <<'END'
import pyarrow
def through(*records):
    return pyarrow.Table.from_pylist(list(records)).to_pylist()
read = {"name": "read", "arguments": {"path": "/etc/hosts"}}
wait = {"name": "wait", "arguments": {"seconds": 1}}
print(through({"calls": [read]}, {"calls": [wait]})[0]["calls"][0]["arguments"])
print(through({"id": 1}, {"id": 2, "reward": 1.0}))
END
python calls.py >out
seen "arguments of the first call" "$(sed -n 1p out)" "{'path': '/etc/hosts', 'seconds': None}"
seen "records, of which the second has a reward" "$(sed -n 2p out)" "[{'id': 1}, {'id': 2}]"
