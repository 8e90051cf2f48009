"""Answering calls from the graph, and settling who executes a call that has no answer."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Mapping

from tvsnap.graph.base import GraphPart
from tvsnap.graph.database import FAILURES, explain, is_undecodable
from tvsnap.graph.model import Edge, Lease
from tvsnap.graph.rows import EDGE_COLUMNS, to_answer, to_mapping
from tvsnap.host.waiting import alike
from tvsnap.model.calls import ToolCall

# Whether the state that edge e leads to can be had for whoever is given its answer: by a snapshot, or by making the
# call again. The parameter is the backend.
KEPT = """
(e.next_state IS NULL OR e.proven OR EXISTS (SELECT 1 FROM snapshots n WHERE n.state = e.next_state AND n.backend = ?))
"""
# One range of the index edges_by_call: what is not shared has no slot, and so lies outside of it.
_CANDIDATES = f"""
SELECT {EDGE_COLUMNS.format("e")} FROM edges e
WHERE e.state = ? AND e.call_key = ? AND e.slot >= 0 AND e.deterministic
AND (e.slot = ? OR e.slot = 0 AND e.duration <= ?) AND (? OR e.blocked OR NOT e.timed_out) AND {KEPT}
"""
_LOOKUP = f"{_CANDIDATES} AND e.waited = 0 LIMIT 1"
_LOOKUP_WAITED = f"""{_CANDIDATES}
AND CASE e.waited WHEN 0 THEN ? + e.duration <= ? ELSE e.waited BETWEEN ? AND ? END
ORDER BY abs(e.waited - ?) LIMIT 1
"""
# Of the records of a call that is to be shared, the latest counts.
_IS_DETERMINISTIC = """
SELECT deterministic FROM edges WHERE state = ? AND call_key = ? AND slot = 0 ORDER BY id DESC LIMIT 1
"""
_LATEST = """
SELECT duration, refusals, timed_out AND NOT blocked AND slot IS NULL, reason FROM edges
WHERE state = ? AND call_key = ? ORDER BY id DESC LIMIT 1
"""
_GRADES = """
SELECT grade, count(*) FROM edges WHERE state = ? AND call_key = ? AND grade IS NOT NULL GROUP BY grade
"""
_LEASE = """
INSERT INTO leases (state, call_key, owner, taken) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET owner = excluded.owner, taken = excluded.taken
"""


class Answers(GraphPart):
    """The part of `Graph` that calls go through: an answer, or the right to execute the call."""

    gives_timeouts: bool

    def lookup(
        self,
        state: str,
        call: ToolCall,
        timeout: float,
        backend: str = "",
        *,
        waited: float = 0.0,
        quiet_s: float = math.inf,
    ) -> Edge | None:
        """Returns the recorded answer to a call, None if there is none that may be given.

        It may be given if all of this holds:

        - it is shared, and was never seen to differ;
        - it ended by itself within `timeout`, or was blocked until just this timeout, or, where timeouts are shared
          (`gives_timeouts`), was working until just then;
        - whoever is given it can go on from the very state that it led to: nothing was changed, that state has a
          snapshot, or making the call again was proven to lead there;
        - time makes no difference: nothing changes by itself until the call would have ended, then as now; or the state
          had then been left to itself for about as long as now (`tvsnap.host.waiting`).

        What is not what was recorded, because the file was damaged, is not given: the call is then made again, and
        recorded anew. Writes nothing; may be called from an event loop.

        Args:
            state: where the call is made.
            call: the call.
            timeout: seconds that the caller would wait.
            backend: whose snapshots can be used.
            waited: seconds that the state has been left to itself.
            quiet_s: seconds in which it does not change by itself.

        Raises:
            TvsnapError: if the file cannot be read.
        """
        database = self._database
        reader = database.reader()
        try:
            return self._answer(reader, state, call, timeout, backend, waited, quiet_s)
        except FAILURES as error:
            raise explain(database.path, error) from error
        finally:
            database.give_back(reader)

    def claim(
        self,
        state: str,
        call: ToolCall,
        timeout: float,
        backend: str = "",
        *,
        owner: str,
        is_alive: Callable[[str], bool],
        waited: float = 0.0,
        quiet_s: float = math.inf,
    ) -> Edge | Lease | None:
        """Settles, at once for all processes, who executes a call: nobody, `owner`, or who does so already.

        Args:
            state, call, timeout, backend, waited, quiet_s: see `lookup`.
            owner: who asks. What it already holds it is given again: it knows what it executes.
            is_alive: tells whether another holder still lives; if it does not, its lease is taken over.

        Returns:
            The recorded answer; or the lease of the call, which `owner` has now, or another, to be waited for; or None
            where no lease is needed, as what comes of the call is shared with nobody.

        Raises:
            TvsnapError: if the file cannot be written.
        """
        key = (bytes.fromhex(state), bytes.fromhex(call.key))
        with self._database.write() as cursor:
            answer = self._answer(cursor, state, call, timeout, backend, waited, quiet_s)
            if answer is not None:
                return answer
            recorded = cursor.execute(_IS_DETERMINISTIC, key).fetchone()
            if recorded is not None and not recorded[0]:
                return None
            held = cursor.execute("SELECT owner, taken FROM leases WHERE state = ? AND call_key = ?", key).fetchone()
            if held is not None and held[0] != owner and is_alive(held[0]):
                return Lease(state, call.key, *held)
            now = time.time()
            cursor.execute(_LEASE, (*key, owner, now))
            return Lease(state, call.key, owner, now)

    def release(self, state: str, call_key: str, owner: str) -> bool:
        """Gives a lease back.

        Returns:
            Whether `owner` held it.
        """
        key = (bytes.fromhex(state), bytes.fromhex(call_key), owner)
        return self._change("DELETE FROM leases WHERE state = ? AND call_key = ? AND owner = ?", key) == 1

    def latest(self, state: str, call_key: str) -> tuple[float, Mapping[str, str], str | None] | None:
        """Tells how a call went when it was last recorded in a state; None if it never was.

        Returns:
            The seconds that it took; why the state that it led to could not be checkpointed, by backend; and, where it
            was ended by its timeout while it was working, why it answers nobody.
        """
        row = self._row(_LATEST, (bytes.fromhex(state), bytes.fromhex(call_key)))
        if row is None:
            return None
        duration, refusals, cut_short, reason = row
        return duration, to_mapping(refusals), reason if cut_short else None

    def grades(self, state: str, call_key: str) -> dict[str, int]:
        """Returns how often each grade was given by executions of a call in a state; see `Edge.grade`."""
        return dict(self._rows(_GRADES, (bytes.fromhex(state), bytes.fromhex(call_key))))

    def holder(self, state: str, call_key: str) -> Lease | None:
        """Returns the lease for a call in a state, None if nobody holds it."""
        key = (bytes.fromhex(state), bytes.fromhex(call_key))
        row = self._row("SELECT owner, taken FROM leases WHERE state = ? AND call_key = ?", key)
        return None if row is None else Lease(state, call_key, *row)

    def leases(self) -> list[Lease]:
        """Returns all leases, oldest first."""
        rows = self._rows("SELECT state, call_key, owner, taken FROM leases ORDER BY taken")
        return [Lease(state.hex(), call_key.hex(), owner, taken) for state, call_key, owner, taken in rows]

    def sweep_leases(self, is_alive: Callable[[str], bool]) -> int:
        """Deletes the leases whose holders are dead.

        Returns:
            How many.
        """
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
        waited: float,
        quiet_s: float,
    ) -> Edge | None:
        """See `Answers.lookup`; raises what SQLite raises, but for text that is damaged, which is no answer."""
        key = (bytes.fromhex(state), bytes.fromhex(call.key), timeout, timeout, self.gives_timeouts, backend)
        try:
            if quiet_s == math.inf:
                row = reader.execute(_LOOKUP, key).fetchone()
            else:
                least, most = alike(waited)
                row = reader.execute(_LOOKUP_WAITED, (*key, waited, quiet_s, least, most, waited)).fetchone()
        except FAILURES as error:
            if is_undecodable(error):
                return None
            raise
        return None if row is None else to_answer(row, call)
