"""Pauses after failed snapshots: of the sandbox, of its task, or of all.

The cause of a failed checkpoint may lie in the sandbox itself, by chance or on purpose, and so may the same failure in
all sandboxes of a task, which run the same programs. So the failures of one sandbox delay only its own snapshots, and
those of several sandboxes of a task the snapshots of that task. All snapshots are delayed if the host itself found
that there is no room, or if checkpoints of several tasks failed for the same cause while none succeeded.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from typing import TypeVar

RETRY_AFTER = 60.0  # seconds of a pause for lack of room; the longest pause
SHORTEST_PAUSE = 1.0  # seconds after a failure; twice as long each time that it fails again
INDEPENDENT = 3
"""Sandboxes that must fail in a row for one cause to blame the task; tasks, to blame the machine."""
_REMEMBERED = 10_000  # sandboxes, tasks, causes

K = TypeVar("K")
V = TypeVar("V")


class _Pause:
    """A time without tries, which doubles with each failure until a success."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._until = 0.0

    def __bool__(self) -> bool:
        return time.monotonic() < self._until

    def begin(self, seconds: float = 0.0) -> None:
        self._seconds = min(max(2 * self._seconds, SHORTEST_PAUSE, seconds), RETRY_AFTER)
        self._until = time.monotonic() + self._seconds


class Pauses:
    """Pauses in which no snapshots are tried, by sandbox ids and task names. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all = _Pause()
        self._of: OrderedDict[str, _Pause] = OrderedDict()  # by sandbox
        self._of_task: OrderedDict[str, _Pause] = OrderedDict()
        self._failed: OrderedDict[str, tuple[str, set[str]]] = OrderedDict()  # by task: the last cause, and sandboxes
        self._tasks: OrderedDict[str, set[str]] = OrderedDict()  # by cause

    def hold(self, sandbox: str, task: str | None) -> bool:
        """Returns whether no snapshot of a sandbox is to be tried now; `task` is None if it is not known."""
        with self._lock:
            own = self._of.get(sandbox) or (task is not None and self._of_task.get(task))
            return bool(self._all or own)

    def failed(self, sandbox: str, task: str | None, reason: str) -> None:
        """Notes that a snapshot of a sandbox failed, for a reason that need not lie in the state."""
        cause = re.sub(r"\d+", "", reason)
        with self._lock:
            _latest(self._of, sandbox, _Pause()).begin()
            if task is None:
                return
            if self._failed.get(task, (cause,))[0] != cause:
                del self._failed[task]
            _, sandboxes = _latest(self._failed, task, (cause, set()))
            sandboxes.add(sandbox)
            if len(sandboxes) >= INDEPENDENT:
                sandboxes.clear()
                _latest(self._of_task, task, _Pause()).begin()
            tasks = _latest(self._tasks, cause, set())
            tasks.add(task)
            if len(tasks) >= INDEPENDENT:
                tasks.clear()
                self._all.begin()

    def no_room(self) -> None:
        """Notes that the host has no room for snapshots."""
        with self._lock:
            self._all.begin(RETRY_AFTER)

    def succeeded(self, sandbox: str, task: str | None) -> None:
        """Notes that a snapshot of a sandbox was taken."""
        with self._lock:
            self._of.pop(sandbox, None)
            self._tasks.clear()
            self._all = _Pause()
            if task is not None:
                self._of_task.pop(task, None)
                self._failed.pop(task, None)

    def end(self) -> None:
        """Ends all pauses, so that snapshots are tried at once."""
        with self._lock:
            for table in (self._of, self._of_task, self._failed, self._tasks):
                table.clear()
            self._all = _Pause()


def _latest(table: OrderedDict[K, V], key: K, new: V) -> V:
    """Returns the value of a key, after setting it to `new` if there is none; forgets the oldest keys."""
    value = table.setdefault(key, new)
    table.move_to_end(key)
    while len(table) > _REMEMBERED:
        table.popitem(last=False)
    return value
