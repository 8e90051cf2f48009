#!/usr/bin/env bash
# Python 3.11.7 with PYTHONHASHSEED=0: a set of pairs of which one part is None, or a function
#
# Guess: with that variable, sets of equal things have one order in each process, so that a seeded run is the same again.
# Behaviour: up to Python 3.11 the hash of None is its address, and that of a class or function is still so in later ones.
# The system chooses addresses anew for each process: sets of (task, None), of frozen dataclasses with an optional field, or
# of (task, reward function) have other orders in other runs. Sets of texts, numbers and pairs of both have one.
. "$(dirname "$0")/common.sh"
python3 --version

cat >order.py <<'PYTHON'
import dataclasses, sys
@dataclasses.dataclass(frozen=True)
class Task:
    name: str
    limit: float | None = None
def reward(answer):
    return float(answer == 42)
names = [f"task{number}" for number in range(8)]
print({"none": [name for name, none in {(name, None) for name in names}],
       "optional": [task.name for task in {Task(name) for name in names}],
       "functions": [name for name, function in {(name, reward) for name in names}],
       "texts": [name for name, number in {(name, 1) for name in names}]}[sys.argv[1]])
PYTHON
orders() { for _ in $(seq 8); do PYTHONHASHSEED=0 python3 order.py "$1"; done | sort -u | wc -l; }
for what in none optional functions; do
    seen "$what: is there more than one order in 8 runs" "$([ "$(orders $what)" -gt 1 ] && echo yes)" yes
done
seen "pairs of a text and a number: orders" "$(orders texts)" 1
