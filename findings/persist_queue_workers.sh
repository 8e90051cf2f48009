#!/usr/bin/env bash
# persist-queue 1.1.0: a queue of tasks in a file, for two workers
#
# Guess: a task that one worker has taken, and not acknowledged, is not given to another; `qsize` counts what can be taken; an equal value is the task.
# Behaviour: a worker that opens the SQLiteAckQueue makes all tasks that others have taken ready again, and gets the first one's. Tasks that another object has taken
# stay in `qsize`: 1, and `get` of it raises Empty. `ack` of an equal list, and of an unknown task, returns None without an error; then the task is done again.
. "$(dirname "$0")/common.sh"
packages persist-queue==1.1.0

cat >workers.py <<'PYTHON'
from persistqueue import Empty, SQLiteAckQueue, SQLiteQueue
first = SQLiteAckQueue("tasks")
for name in "ab":
    first.put(name)
taken = first.get(block=False)
second = SQLiteAckQueue("tasks")
print(taken, second.get(block=False), second.get(block=False))
one = SQLiteQueue("plain")
for name in "ab":
    one.put(name)
other = SQLiteQueue("plain")
print(one.get(block=False), other.get(block=False), one.qsize(), end=" ")
try:
    print(one.get(block=False))
except Empty:
    print("Empty")
queue = SQLiteAckQueue("values")
queue.put(["task", 1])
task = queue.get(block=False)
print(queue.ack(["task", 1]), queue.unack_count(), queue.ack(task), queue.unack_count())
PYTHON
python workers.py >out 2>errors || { cat errors >&2; exit 2; }
seen "the task of the first worker, and those of the second" "$(sed -n 1p out)" "a a b"
seen "the task of one object, that of another, qsize of the first, its get" "$(sed -n 2p out)" "a b 1 Empty"
grep -v '^Item' out | sed -n 3p >acks
seen "ack of an equal list, tasks that are not done; ack of the task, tasks that are not done" "$(cat acks)" "None 1 1 0"
