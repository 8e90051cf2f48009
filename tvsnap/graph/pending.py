"""Records in memory: hits, calls that answer nobody and ends of rollouts must not cost a write each."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from tvsnap.graph.insertion import insert_calls, insert_steps, task_number
from tvsnap.graph.model import StepRow
from tvsnap.graph.rows import EdgeRow

FLUSH_AFTER_COUNTS = 2000
FLUSH_AFTER_SECONDS = 1.0


class Pending:
    """Calls that answer nobody, hits, steps, visits, forks, counters and ends that are not written yet. Thread-safe.

    The latest second of them is lost if the process is killed: they inform people and policies, and no answer depends
    on them.

    Attributes:
        count: returns the counts since its last call, to be added to counters.
    """

    count: Callable[[], Mapping[str, float]]

    def __init__(self, write: Callable[[], object] | None = None) -> None:
        """
        Args:
            write: writes the records; a thread calls it a second after the first one was kept. It must not raise.
        """
        self.count = dict
        self._lock = threading.Lock()
        self._writing = threading.RLock()
        self._are_calls_written = False
        self._write_late = write
        self._timer: threading.Timer | None = None
        self._clear()

    def __bool__(self) -> bool:
        """Returns whether there is anything to write."""
        return bool(self._hits or self._forks or self._counters or self._calls or self._ends or self._steps)

    @property
    def has_calls(self) -> bool:
        """Whether calls are kept, or are being written, which a reader may be looking for."""
        return bool(self._calls) or self._are_calls_written

    def _clear(self) -> None:
        self._calls: list[tuple[EdgeRow, str | None, str, StepRow | None]] = []
        self._steps: list[StepRow] = []
        self._hits: dict[int, int] = {}
        self._visits: set[tuple[int, str]] = set()
        self._forks: dict[tuple[bytes, str], tuple[int, float, float | None]] = {}
        self._counters: dict[str, float] = {}
        self._ends: dict[str, tuple[float, bytes, str | None]] = {}

    def _set_timer(self) -> None:
        """Has a thread write the records soon; called with the lock held, if no thread is about to."""
        if self._write_late is not None:
            timer = threading.Timer(FLUSH_AFTER_SECONDS, self._ring)
            timer.name, timer.daemon = "tvsnap-flush", True
            with contextlib.suppress(RuntimeError):  # the interpreter ends, or there are too many threads
                timer.start()
                self._timer = timer

    def _ring(self) -> None:
        self._timer = None
        if self._write_late is not None:
            self._write_late()

    def call(self, row: EdgeRow, private: str | None, task: str, step: StepRow | None) -> None:
        """Keeps a call of a task; `private`: why the branch from its next state on is not shared."""
        with self._lock:
            self._calls.append((row, private, task, step))
            if self._timer is None:
                self._set_timer()

    def step(self, step: StepRow) -> None:
        """Keeps a call of a rollout that is recorded already, or is not to be."""
        with self._lock:
            self._steps.append(step)
            if self._timer is None:
                self._set_timer()

    def hit(self, edge: int, task: str, step: StepRow | None) -> None:
        """Counts a hit on an edge by a task, with its step of a rollout."""
        with self._lock:
            if step is not None:
                self._steps.append(step)
            self._hits[edge] = self._hits.get(edge, 0) + 1
            self._visits.add((edge, task))
            if self._timer is None:
                self._set_timer()

    def hits_of(self, edge: int) -> int:
        """Returns the number of hits on an edge that are not written yet."""
        return self._hits.get(edge, 0)

    def fork(self, state: bytes, backend: str, seconds: float | None) -> None:
        """Counts a fork of a snapshot, which took `seconds`."""
        with self._lock:
            count, _, before = self._forks.get((state, backend), (0, 0.0, None))
            self._forks[state, backend] = (count + 1, time.time(), before if seconds is None else seconds)
            if self._timer is None:
                self._set_timer()

    def end(self, rollout: str, state: bytes, outcome: str | None) -> None:
        """Notes that a rollout has ended now, in a state; `outcome` is the error that ended it."""
        with self._lock:
            self._ends[rollout] = (time.time(), state, outcome)
            if self._timer is None:
                self._set_timer()

    def add(self, counters: Mapping[str, float]) -> None:
        """Adds to counters."""
        with self._lock:
            for name, value in counters.items():
                self._counters[name] = self._counters.get(name, 0.0) + value

    def schedule(self) -> bool:
        """Has records and counts be written within a second; returns whether there are too many to wait."""
        if self._timer is None:
            with self._lock:
                if self._timer is None:
                    self._set_timer()
        return len(self._visits) + len(self._calls) + len(self._steps) > FLUSH_AFTER_COUNTS

    @contextlib.contextmanager
    def taken(self) -> Iterator[Pending]:
        """A block, one at a time, that writes everything kept so far; if it fails, the counts are kept."""
        with self._writing:
            batch = self._take()
            try:
                yield batch
            except BaseException:
                self._put_back(batch)
                raise
            finally:
                self._are_calls_written = False

    def _take(self) -> Pending:
        """Returns everything kept so far, and starts again empty."""
        self.add(self.count())
        batch = Pending()
        with self._lock:
            self._are_calls_written = bool(self._calls)
            batch._hits, batch._visits, batch._forks = self._hits, self._visits, self._forks
            batch._counters, batch._calls, batch._ends = self._counters, self._calls, self._ends
            batch._steps = self._steps
            self._clear()
        return batch

    def _put_back(self, batch: Pending) -> None:
        """Adds a batch that could not be written; its calls are lost, because they may be long and many."""
        with self._lock:
            for edge, count in batch._hits.items():
                self._hits[edge] = self._hits.get(edge, 0) + count
            self._visits |= batch._visits
            self._ends |= batch._ends
            self._steps[:0] = batch._steps[-FLUSH_AFTER_COUNTS:]
            for key, (count, used, seconds) in batch._forks.items():
                later = self._forks.get(key, (0, used, None))
                self._forks[key] = (count + later[0], max(used, later[1]), seconds if later[2] is None else later[2])
        self.add(batch._counters)

    def write(self, cursor: sqlite3.Cursor) -> None:
        """Writes everything in the transaction of `cursor`, except for rows that another process has deleted."""
        steps = [*self._steps, *insert_calls(cursor, self._calls)]
        if steps:
            insert_steps(cursor, steps)
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
        if self._ends:  # but of those whose task was forgotten meanwhile
            cursor.executemany(
                "UPDATE rollouts SET finished = ?, state = ?, outcome = ? WHERE id = ?",
                [(*ending, rollout) for rollout, ending in self._ends.items()],
            )
        if self._counters:
            cursor.executemany(
                "INSERT INTO counters (name, value) VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
                list(self._counters.items()),
            )
