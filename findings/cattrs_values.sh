#!/usr/bin/env bash
# cattrs 26.2.1: a task's settings, from JSON or YAML into a class with types
#
# Guess: a value of another type is an error, or is read as what it says.
# Behaviour: each value is given to the type as a function: the text "false" is True for bool, 1.7 is 1 for int, None is the text "None" for
# str, and "12" is the list [1, 2]. A misspelt field is dropped, and has its default, unless `forbid_extra_keys` is set.
. "$(dirname "$0")/common.sh"
packages cattrs==26.2.1

cat >settings.py <<'PYTHON'
from dataclasses import dataclass, field
import cattrs
@dataclass
class Task:
    network: bool = False
    turns: int = 1
    name: str = ""
    steps: list[int] = field(default_factory=list)
for given in {"network": "false"}, {"turns": 1.7}, {"name": None}, {"steps": "12"}, {"steps": [True, "3", 4.9]}, {"turn": 9}:
    print(cattrs.structure(given, Task))
PYTHON
python settings.py | sed 's/^Task(//; s/)$//' >out
seen 'network: "false"' "$(sed -n 1p out)" "network=True, turns=1, name='', steps=[]"
seen 'turns: 1.7' "$(sed -n 2p out)" "network=False, turns=1, name='', steps=[]"
seen 'name: null' "$(sed -n 3p out)" "network=False, turns=1, name='None', steps=[]"
seen 'steps: "12"' "$(sed -n 4p out)" "network=False, turns=1, name='', steps=[1, 2]"
seen 'steps: [true, "3", 4.9]' "$(sed -n 5p out)" "network=False, turns=1, name='', steps=[1, 3, 4]"
seen 'turn: 9' "$(sed -n 6p out)" "network=False, turns=1, name='', steps=[]"
