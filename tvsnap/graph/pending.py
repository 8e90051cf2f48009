"""What a process has counted and not yet written: a hit must not cost a write."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Mapping

FLUSH_AFTER_COUNTS = 2000
FLUSH_AFTER_SECONDS = 5.0


class Pending:
    """Hits, visits, forks and counters on their way to the database. Thread-safe.

    Lost if the process is killed: they inform people and policies, and no answer depends on them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clear()

    def __bool__(self) -> bool:
        """Whether anything was counted."""
        return bool(self._hits or self._forks or self._counters)

    def _clear(self) -> None:
        self._hits: dict[int, int] = {}
        self._visits: set[tuple[int, str]] = set()
        self._forks: dict[tuple[bytes, str], tuple[int, float, float | None]] = {}
        self._counters: dict[str, float] = {}
        self._since = time.monotonic()

    def hit(self, edge: int, task: str) -> None:
        """Counts a hit on an edge by a task."""
        with self._lock:
            self._hits[edge] = self._hits.get(edge, 0) + 1
            self._visits.add((edge, task))

    def fork(self, state: bytes, backend: str, seconds: float | None) -> None:
        """Counts a fork of a snapshot, which took `seconds`."""
        with self._lock:
            count, _, before = self._forks.get((state, backend), (0, 0.0, None))
            self._forks[state, backend] = (count + 1, time.time(), before if seconds is None else seconds)

    def add(self, counters: Mapping[str, float]) -> None:
        """Adds to counters."""
        with self._lock:
            for name, value in counters.items():
                self._counters[name] = self._counters.get(name, 0.0) + value

    def due(self) -> bool:
        """Whether it is time to write."""
        return len(self._visits) > FLUSH_AFTER_COUNTS or (
            bool(self) and time.monotonic() - self._since > FLUSH_AFTER_SECONDS
        )

    def take(self) -> Pending:
        """Returns all that was counted, and starts again from nothing."""
        taken = Pending()
        with self._lock:
            taken._hits, taken._visits, taken._forks = self._hits, self._visits, self._forks
            taken._counters = self._counters
            self._clear()
        return taken

    def put_back(self, taken: Pending) -> None:
        """Adds what `take` gave and could not be written."""
        with self._lock:
            for edge, count in taken._hits.items():
                self._hits[edge] = self._hits.get(edge, 0) + count
            self._visits |= taken._visits
            for key, (count, used, seconds) in taken._forks.items():
                later = self._forks.get(key, (0, used, None))
                self._forks[key] = (count + later[0], max(used, later[1]), seconds if later[2] is None else later[2])
        self.add(taken._counters)

    def write(self, cursor: sqlite3.Cursor) -> None:
        """Writes everything in the transaction of `cursor`; what another process has deleted meanwhile is skipped."""
        if self._hits:
            cursor.executemany("UPDATE edges SET hits = hits + ? WHERE id = ?", [(n, e) for e, n in self._hits.items()])
        tasks = {task: task_number(cursor, task) for task in {task for _, task in self._visits}}
        if self._visits:
            cursor.executemany(
                "INSERT OR IGNORE INTO visits (edge, task) SELECT id, ? FROM edges WHERE id = ?",
                [(tasks[task], edge) for edge, task in self._visits],
            )
        for (state, backend), (count, used, seconds) in self._forks.items():
            cursor.execute(
                "UPDATE snapshots SET forks = forks + ?, last_used = max(last_used, ?), fork_s = coalesce(?, fork_s) "
                "WHERE state = ? AND backend = ?",
                (count, used, seconds, state, backend),
            )
        if self._counters:
            cursor.executemany(
                "INSERT INTO counters (name, value) VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
                list(self._counters.items()),
            )


def task_number(cursor: sqlite3.Cursor, task: str) -> int:
    """Returns the number that stands for a task in `visits`, giving it one if need be."""
    row = cursor.execute("SELECT id FROM tasks WHERE name = ?", (task,)).fetchone()
    if row is None:
        cursor.execute("INSERT INTO tasks (name) VALUES (?)", (task,))
        assert cursor.lastrowid is not None
        return cursor.lastrowid
    number: int = row[0]
    return number
