"""Answers calls from the graph, and decides who executes a call that has no answer."""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Callable, Hashable, Mapping

from tvsnap.graph.base import GraphPart
from tvsnap.graph.model import Edge, Lease, StepRow
from tvsnap.graph.rows import EDGE_COLUMNS, to_answer, to_mapping
from tvsnap.host.database import FAILURES, Database, is_undecodable
from tvsnap.host.waiting import LATE_S, NO_WAIT, SLACK, SLACK_S, Wait
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import TvsnapError
from tvsnap.model.reasons import Why

# A condition: the state that edge e leads to has a snapshot, or making the call again leads there. The parameter is the
# backend.
KEPT = """
(e.next_state IS NULL OR e.proven OR EXISTS (SELECT 1 FROM snapshots n WHERE n.state = e.next_state AND n.backend = ?))
"""
# One range of the index edges_by_call: records that are not shared have no slot, and so lie outside of it.
_CANDIDATES = f"""
FROM edges e
WHERE e.state = ? AND e.call_key = ? AND e.slot >= 0 AND e.deterministic
AND (e.slot = ? OR e.slot = 0 AND e.duration <= ?) AND (? OR NOT e.timed_out OR e.strain IS NULL) AND {KEPT}
"""
_EARLIEST, _LATEST_WAIT = "coalesce(e.earliest, e.waited)", "coalesce(e.latest, e.waited)"
_LOOKUP = f"SELECT {EDGE_COLUMNS.format('e')} {_CANDIDATES} AND e.waited = 0 LIMIT 1"
_LOOKUP_WAITED = f"""SELECT {EDGE_COLUMNS.format("e")} {_CANDIDATES}
AND CASE e.waited WHEN 0 THEN (e.next_state IS NULL OR e.quiet_s IS NULL) AND ? + e.duration <= ?
ELSE {_LATEST_WAIT} >= ? AND {_EARLIEST} <= ? AND (e.next_state IS NULL OR e.quiet_s IS NULL OR
    ? - e.waited <= {SLACK_S} + {SLACK} * (? + {_LATEST_WAIT} - e.waited) AND
    e.waited - ? <= {LATE_S} + {SLACK} * (? + {_LATEST_WAIT} - e.waited)) END
ORDER BY abs(e.waited - ?) LIMIT 1
"""
# Of the answers of longer waits, the first that serves sooner than an execution would end.
_DUE = f"""SELECT {_EARLIEST} {_CANDIDATES}
AND e.asked IS NULL AND {_EARLIEST} > ? AND {_EARLIEST} < ? + {1.0 + SLACK} * e.duration ORDER BY 1 LIMIT 1
"""
# Of the records of a shared call, the latest counts.
_IS_DETERMINISTIC = """
SELECT deterministic FROM edges WHERE state = ? AND call_key = ? AND slot = 0 ORDER BY id DESC LIMIT 1
"""
_LATEST = """
SELECT duration, refusals, timed_out AND slot IS NULL, reason FROM edges
WHERE state = ? AND call_key = ? ORDER BY id DESC LIMIT 1
"""
_WHY = f"""
SELECT slot, deterministic, reason, duration, timed_out, next_state, refusals, {KEPT} FROM edges e
WHERE state = ? AND call_key = ? ORDER BY slot IS NULL, id DESC LIMIT 1
"""
_GRADES = """
SELECT grade, count(*) FROM edges WHERE state = ? AND call_key = ? AND grade IS NOT NULL GROUP BY grade
"""
_LEASE = """
INSERT INTO leases (state, call_key, owner, taken) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET owner = excluded.owner, taken = excluded.taken
"""

MOST_REMEMBERED = 32 * 1024 * 1024
"""Bytes that all answers in memory may take, about."""
_SIZE = 2048  # of a record without its texts


class Remembered:
    """Records of calls that were read from a graph lately. Thread-safe.

    One is given again only if nobody has altered anything in the file since it was read, in this process or in another:
    what was changed or deleted is read anew. Only the count of its hits may be an earlier one.
    """

    def __init__(self, database: Database) -> None:
        """
        Args:
            database: the file from which they are read.
        """
        self._database = database
        self._lock = threading.Lock()
        self._size = 0
        self._kept: dict[Hashable, tuple[int, Edge, int]] = {}

    def get(self, key: Hashable, read: Callable[[], Edge | None]) -> Edge | None:
        """Returns the record of a key; None if there is none, which is not remembered.

        Args:
            key: the key.
            read: reads it from the file.

        Raises:
            TvsnapError: the file cannot be read.
        """
        version = self._database.version  # before the record is read, which may be newer, but not older
        kept = self._kept.get(key)
        if kept is not None and kept[0] == version:
            return kept[1]
        edge = read()
        if edge is not None and version is not None:
            self._keep(key, version, edge)
        return edge

    def _keep(self, key: Hashable, version: int, edge: Edge) -> None:
        size = _SIZE + len(edge.call.canonical) + sum(len(part.data) for part in edge.result.parts)
        with self._lock:
            before = self._kept.pop(key, None)
            self._size += size - (0 if before is None else before[2])
            self._kept[key] = (version, edge, size)
            while self._size > MOST_REMEMBERED:
                self._size -= self._kept.pop(next(iter(self._kept)))[2]


class Answers(GraphPart):
    """The part of `Graph` that gives a call its answer, or the right to execute it."""

    gives_timeouts: bool
    _remembered: Remembered

    def lookup(
        self,
        state: str,
        call: ToolCall,
        timeout: float,
        backend: str = "",
        *,
        wait: Wait = NO_WAIT,
        quiet_s: float = math.inf,
    ) -> Edge | None:
        """Returns the recorded answer to a call; None if there is none that may be used.

        It may be used if all of this holds:

        - it is shared, and was never seen to differ;
        - it ended by itself within `timeout`, or lasted until exactly this timeout although the load of the machine did
          not hold it up, or even then if timeouts are shared (`gives_timeouts`);
        - a rollout that gets it can go on from the very state that it led to: nothing was changed, that state has a
          snapshot, or making the call again was proven to lead there;
        - time makes no difference: nothing changes by itself until the call would have ended, then as now; or the state
          had existed for about as long as now when the call was made, or at another moment while it stood still
          (`tvsnap.host.waiting`).

        A record that a damaged file has changed is not used: the call is then executed again, and recorded anew.
        Writes nothing; may be called from an event loop. What was given lately is given again without reading it anew,
        for as long as nobody has altered the file.

        Args:
            state: the state in which the call is made.
            call: the call.
            timeout: seconds that the caller would wait.
            backend: the backend whose snapshots can be used.
            wait: for how long the rollout has waited in the state.
            quiet_s: seconds during which the state does not change by itself.

        Raises:
            TvsnapError: the file cannot be read.
        """
        database = self._database

        def read() -> Edge | None:
            reader = database.reader()
            try:
                return self._answer(reader, state, call, timeout, backend, wait, quiet_s)
            except FAILURES as error:
                raise database.explained(error) from error
            finally:
                database.give_back(reader)

        if quiet_s != math.inf:  # then the answer depends on the time
            return read()
        return self._remembered.get((state, call.canonical, timeout, backend), read)

    def answered(self, key: Hashable, read: Callable[[], Edge | None]) -> Edge | None:
        """Returns the record of a call that `read` reads from the graph; again without that, until anybody alters it.

        Args:
            key: of all that the answer depends on but the graph.
            read: reads it; None where there is none.

        Raises:
            TvsnapError: the file cannot be read.
        """
        return self._remembered.get(key, read)

    def touch_hit(self, edge: Edge, task: str = "", step: StepRow | None = None) -> None:
        """Counts an answer of an edge to a call of this task, a step of a rollout; in memory, until `flush`."""
        self._pending.hit(edge.id, task, step)

    def due_in(self, state: str, call: ToolCall, timeout: float, backend: str, wait: Wait) -> float | None:
        """Returns the time until a recorded answer, made after a longer wait, may be used.

        Answers that depend on the network are left out, because they may be too old by then.

        Args:
            state, call, timeout, backend: see `lookup`.
            wait: for how long the rollout has waited in the state, in which something runs by itself.

        Returns:
            Seconds from now on; None if executing the call is quicker.

        Raises:
            TvsnapError: the file cannot be read.
        """
        _, most = wait.serving
        key = (bytes.fromhex(state), bytes.fromhex(call.key), timeout, timeout, self.gives_timeouts, backend)
        row = self._row(_DUE, (*key, most, most))
        return None if row is None else wait.until(row[0])

    def claim(
        self,
        state: str,
        call: ToolCall,
        timeout: float,
        backend: str = "",
        *,
        owner: str,
        is_alive: Callable[[str], bool],
        wait: Wait = NO_WAIT,
        quiet_s: float = math.inf,
        task: str = "",
    ) -> Edge | Lease | None:
        """Decides, for all processes at once, whether `owner` executes a call, another owner, or nobody.

        Args:
            state, call, timeout, backend, wait, quiet_s: see `lookup`.
            owner: the process that asks. A lease that it has already is returned again.
            is_alive: returns whether another owner is alive; if it is not, its lease is taken over.
            task: the task that asks; calls from another host are counted to it (`SharedGraph`).

        Returns:
            The recorded answer; or the lease of the call, either `owner`'s or another one, to be waited for; or None if
            no lease is needed, because the result of the call is shared with nobody.

        Raises:
            TvsnapError: the file cannot be written.
        """
        key = (bytes.fromhex(state), bytes.fromhex(call.key))
        with self._database.write() as cursor:
            answer = self._answer(cursor, state, call, timeout, backend, wait, quiet_s)
            if answer is not None:
                return answer
            recorded = cursor.execute(_IS_DETERMINISTIC, key).fetchone()
            if recorded is not None and not recorded[0]:
                return None
            lease = cursor.execute("SELECT owner, taken FROM leases WHERE state = ? AND call_key = ?", key).fetchone()
            if lease is not None and lease[0] != owner and is_alive(lease[0]):
                return Lease(state, call.key, *lease)
            now = time.time()
            cursor.execute(_LEASE, (*key, owner, now))
            return Lease(state, call.key, owner, now)

    def release(self, state: str, call_key: str, owner: str) -> bool:
        """Gives a lease back; returns whether `owner` had it."""
        key = (bytes.fromhex(state), bytes.fromhex(call_key), owner)
        return self._change("DELETE FROM leases WHERE state = ? AND call_key = ? AND owner = ?", key) == 1

    def latest(self, state: str, call_key: str) -> tuple[float, Mapping[str, str], str | None] | None:
        """Returns facts of the last record of a call in a state; None if there is none.

        Returns:
            The call's duration in seconds; the reasons why the state that it led to could not be checkpointed, by
            backend; and, if its timeout ended it, the reason why it answers nobody.
        """
        row = self._row(_LATEST, (bytes.fromhex(state), bytes.fromhex(call_key)))
        if row is None:
            return None
        duration, refusals, cut_short, reason = row
        return duration, to_mapping(refusals), reason if cut_short else None

    def why_unanswered(self, state: str, call_key: str, timeout: float, backend: str) -> Why:
        """Returns the reason why `lookup` has just given no answer to a call.

        Args:
            state: the state in which the call is made.
            call_key: the call's key.
            timeout: seconds that the caller would wait.
            backend: the backend whose snapshots can be used.
        """
        key = (backend, bytes.fromhex(state), bytes.fromhex(call_key))
        try:
            with self._database.read() as reader:  # records that are not written yet answer nobody
                row = reader.execute(_WHY, key).fetchone()
        except TvsnapError:
            return Why("unreadable", "its record cannot be read")
        if row is None:
            return Why("new", "it was not made in this state before")
        slot, deterministic, reason, duration, timed_out, next_state, refusals, is_kept = row
        if not deterministic:
            return Why("differing", f"it was seen to come to something else: {reason}")
        if slot is None:
            return Why("unshared", f"its result is not shared: {reason}")
        if timed_out and slot != timeout:
            return Why("timeout", "it had timed out, with another timeout")
        if not timed_out and duration > timeout:
            return Why("timeout", "it had taken longer than its timeout is now")
        if not is_kept and next_state is not None:
            refused = to_mapping(refusals).get(backend)
            why = f": {refused}" if refused else ", nor is it known to do the same each time"
            return Why("unkept", f"the state that it had led to is not kept{why}")
        return Why("waiting", "something runs by itself there, and it had been made after another wait")

    def grades(self, state: str, call_key: str) -> dict[str, int]:
        """Returns the grades that executions of a call in a state gave, with their numbers; see `Edge.grade`."""
        return dict(self._rows(_GRADES, (bytes.fromhex(state), bytes.fromhex(call_key))))

    def holder(self, state: str, call_key: str) -> Lease | None:
        """Returns the lease for a call in a state; None if there is none."""
        key = (bytes.fromhex(state), bytes.fromhex(call_key))
        row = self._row("SELECT owner, taken FROM leases WHERE state = ? AND call_key = ?", key)
        return None if row is None else Lease(state, call_key, *row)

    def leases(self) -> list[Lease]:
        """Returns all leases, oldest first."""
        rows = self._rows("SELECT state, call_key, owner, taken FROM leases ORDER BY taken")
        return [Lease(state.hex(), call_key.hex(), owner, since) for state, call_key, owner, since in rows]

    def sweep_leases(self, is_alive: Callable[[str], bool]) -> int:
        """Deletes the leases of dead owners; returns their number."""
        dead = {owner for owner in {lease.owner for lease in self.leases()} if not is_alive(owner)}
        with self._database.write() as cursor:
            cursor.executemany("DELETE FROM leases WHERE owner = ?", [(owner,) for owner in dead])
            return max(cursor.rowcount, 0)

    def _answer(
        self,
        reader: sqlite3.Connection | sqlite3.Cursor,
        state: str,
        call: ToolCall,
        timeout: float,
        backend: str,
        wait: Wait,
        quiet_s: float,
    ) -> Edge | None:
        """Does the work of `lookup`.

        Raises errors of SQLite, except for damaged text, which is no answer.
        """
        key = (bytes.fromhex(state), bytes.fromhex(call.key), timeout, timeout, self.gives_timeouts, backend)
        try:
            if quiet_s == math.inf:
                row = reader.execute(_LOOKUP, key).fetchone()
            else:
                lags = (wait.longest, wait.seconds, wait.shortest, wait.seconds)
                times = (wait.passed, quiet_s, *wait.serving, *lags, wait.seconds)
                row = reader.execute(_LOOKUP_WAITED, (*key, *times)).fetchone()
        except FAILURES as error:
            if is_undecodable(error):
                return None
            raise
        return None if row is None else to_answer(row, call)
