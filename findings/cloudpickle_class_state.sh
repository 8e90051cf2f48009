#!/usr/bin/env bash
# cloudpickle 3.1.2: a reward object, of a class of the trainer's script, that is sent to the same worker twice
#
# Guess: the second object arrives beside the first; what the class has counted or cached in the worker stays.
# Behaviour: the class is one, and each arrival sets its attributes to what they were at the sender: a count starts anew, also
# for the first object. Globals that a function uses are not shared: each arrival of a function has its own.
. "$(dirname "$0")/common.sh"
packages cloudpickle==3.1.2

cat >trainer.py <<'PYTHON'
import cloudpickle
class Reward:
    calls = 0
    def __call__(self):
        Reward.calls += 1
        return Reward.calls
calls = 0
def reward():
    global calls
    calls += 1
    return calls
for name, each in (("object", Reward()), ("function", reward)):
    with open(name, "wb") as out:
        out.write(cloudpickle.dumps(each))
PYTHON
cat >worker.py <<'PYTHON'
import pickle
for name in ("object", "function"):
    with open(name, "rb") as file:
        data = file.read()
    first = pickle.loads(data)
    seen = [first(), first(), first()]
    second = pickle.loads(data)
    print(*seen, second(), first())
PYTHON
python trainer.py
python worker.py >out
seen "object: the first three times, the second one, the first again" "$(sed -n 1p out)" "1 2 3 1 2"
seen "function: the same" "$(sed -n 2p out)" "1 2 3 1 4"
