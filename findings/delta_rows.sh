#!/usr/bin/env bash
# deltalake 1.6.6 with pyarrow 26.0.1: rollouts in a Delta table, partitioned by group
#
# Guess: rows come back as they were, in the order in which they were added; values of another type are an error.
# Behaviour: an empty text in the column of the partition is None, so that a filter for it finds nothing. A reward of 0.5 that is added to a
# table that began with whole numbers is 0, and a text "7" is 7; a column too few or too many is an error. What is added
# later is read first.
. "$(dirname "$0")/common.sh"
packages deltalake==1.6.6 pyarrow==26.0.1

cat >rows.py <<'PYTHON'
import pyarrow
from deltalake import DeltaTable, write_deltalake
def rows(table):
    return [tuple(row.values()) for row in DeltaTable(table).to_pyarrow_table().to_pylist()]
write_deltalake("groups", pyarrow.table({"group": ["a", "", None], "step": [1, 2, 3]}), partition_by=["group"])
print(sorted(rows("groups"), key=lambda row: row[1]), DeltaTable("groups").to_pyarrow_table(filters=[("group", "=", "")]).num_rows)
write_deltalake("rewards", pyarrow.table({"reward": [1, 0]}))
write_deltalake("rewards", pyarrow.table({"reward": [0.5, -0.5]}), mode="append")
write_deltalake("rewards", pyarrow.table({"reward": ["7"]}), mode="append")
print(rows("rewards"))
try:
    write_deltalake("rewards", pyarrow.table({"reward": [1], "step": [1]}), mode="append")
except Exception as error:
    print(type(error).__name__)
PYTHON
python rows.py >out
seen "groups a, an empty text and None; rows of the empty text" "$(sed -n 1p out)" "[('a', 1), (None, 2), (None, 3)] 0"
seen "rewards 1 and 0, then 0.5 and -0.5, then the text 7" "$(sed -n 2p out)" "[(7,), (0,), (0,), (1,), (0,)]"
seen "one more column" "$(sed -n 3p out)" "SchemaMismatchError"
