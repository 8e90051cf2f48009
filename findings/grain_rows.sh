#!/usr/bin/env bash
# grain 0.2.18: rows of a `MapDataset`
#
# Guess: rows[7] of five is an error; a row that `map` makes None is None; a slice of two has two rows; each pass has one order.
# Behaviour: indices begin anew behind the end, so that rows[7] is rows[2]. A row that is None is missing, also one of a source. What a filter
# drops is counted by `len` and slices, and is None by its index. `shuffle(seed=1)` has another order in each pass of `repeat`, and so by
# indices behind the end. A state is a number alone, so that an iterator with another order takes it. A mixture ends with its first data set.
. "$(dirname "$0")/common.sh"
packages grain==0.2.18

cat >rows.py <<'PYTHON'
from grain import MapDataset
rows = MapDataset.range(5)
even = rows.filter(lambda row: row % 2 == 0)
print(rows[7])
print(list(rows.map(lambda row: None if row == 2 else row)), list(MapDataset.source([1, None, 3])))
print(len(even), list(even), list(even[:2]), even[1])
shuffled = rows.shuffle(seed=1)
print(list(shuffled), list(shuffled.repeat(2))[5:], [shuffled[index] for index in range(5, 10)])
first = iter(shuffled.to_iter_dataset())
print(next(first), first.get_state())
other = iter(rows.shuffle(seed=99).map(lambda row: row * 10).to_iter_dataset())
other.set_state(first.get_state())
print(list(other))
print(list(MapDataset.mix([MapDataset.range(3), MapDataset.range(100, 200)], weights=[0.9, 0.1])))
PYTHON
python rows.py 2>errors >out || { cat errors >&2; exit 2; }
seen "rows[7] of 0 to 4" "$(sed -n 1p out)" "2"
seen "2 is mapped to None; a source of 1, None and 3" "$(sed -n 2p out)" "[0, 1, 3, 4] [1, 3]"
seen "even rows: len, all, [:2], [1]" "$(sed -n 3p out)" "5 [0, 2, 4] [0] None"
seen "shuffled: first pass, second pass, rows 5 to 9" "$(sed -n 4p out)" "[1, 2, 3, 0, 4] [0, 4, 1, 2, 3] [0, 4, 1, 2, 3]"
seen "its first row, and its state then" "$(sed -n 5p out)" "1 {'next_index': 1}"
seen "that state, for ten times the rows with another seed" "$(sed -n 6p out)" "[40, 10, 20, 30]"
seen "90% of 0 to 2, and 10% of 100 to 199" "$(sed -n 7p out)" "[0, 1, 2]"
