#!/usr/bin/env bash
# litequeue 0.9: tasks in a queue of SQLite
#
# Guess: what was put comes back; `done` of an unknown task is an error; a task that is done stays so; `empty` and `qsize` agree.
# Behaviour: 5 comes back as "5", True as "1", 0.1 as "0.1", and `put` still returns the number. `done`, `retry` and `mark_failed` of an unknown name return a number, as
# ever; `retry` of a task that is done gives it out once more; `done` of one that nobody has taken makes it done. While tasks are worked on, the queue is empty
# and has two.
. "$(dirname "$0")/common.sh"
packages litequeue==0.9

cat >queue_values.py <<'PYTHON'
from litequeue import LiteQueue
queue = LiteQueue(":memory:")
print([(queue.put(value).data, queue.pop().data) for value in (5, True, 0.1, "007", b"x")])
queue = LiteQueue(":memory:")
first, second = queue.put("first"), queue.put("second")
queue.pop(), queue.pop()
print(queue.empty(), queue.qsize())
print(*(type(act("unknown")).__name__ for act in (queue.done, queue.retry, queue.mark_failed)))
queue.done(first.message_id)
queue.retry(first.message_id)
print(queue.pop().data, end=" ")
third = queue.put("third")
queue.done(third.message_id)
print(queue.pop())
PYTHON
python queue_values.py >out
seen "values as put returns them, and as they come back" "$(sed -n 1p out)" "[(5, '5'), (True, '1'), (0.1, '0.1'), ('007', '007'), (b'x', b'x')]"
seen "two tasks that are worked on: empty, qsize" "$(sed -n 2p out)" "True 2"
seen "done, retry and mark_failed of an unknown task" "$(sed -n 3p out)" "int int int"
seen "a task that was done, behind retry; one that was done before it was taken" "$(sed -n 4p out)" "first None"
