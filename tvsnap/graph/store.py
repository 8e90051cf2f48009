"""The tool-call graph: what was called in which state, what it returned, and where it led."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvsnap.graph.base import unknown_state
from tvsnap.graph.database import FAILURES, Database, explain, is_undecodable
from tvsnap.graph.forget import Forgetting
from tvsnap.graph.leases import Leases
from tvsnap.graph.lineage import Lineage
from tvsnap.graph.model import REFUSALS, Edge, RootInfo
from tvsnap.graph.pending import Pending, task_number
from tvsnap.graph.rollouts import Rollouts
from tvsnap.graph.rows import EDGE_COLUMNS, UNREADABLE, DamagedRecord, Row, checksum, pack, to_edge, to_extra, unpack
from tvsnap.graph.snapshots import Snapshots
from tvsnap.graph.tree import Tree
from tvsnap.host.waiting import alike
from tvsnap.model.calls import ToolCall, ToolResult, canonical_json
from tvsnap.model.errors import UsageError

PROOF_APART = 2.0
"""Seconds between two executions for their likeness to prove anything: what shows the clock changes in that time."""

# Whether the state that edge e leads to can be had for whoever is given its answer: by a snapshot, or by making the
# call again. The parameter is the backend.
_KEPT = """
(e.next_state IS NULL OR e.proven OR EXISTS (SELECT 1 FROM snapshots n WHERE n.state = e.next_state AND n.backend = ?))
"""
# One range of the index edges_by_call: what is not shared has no slot, and so lies outside of it.
_CANDIDATES = f"""
SELECT e.id, e.timeout, e.output, e.exit_code, e.duration, e.timed_out, e.blocked, e.truncated, e.next_state, e.reason,
       e.hits, e.created, e.extra, e.slot, e.checksum, e.call, e.proven, e.waited, e.quiet_s
FROM edges e
WHERE e.state = ? AND e.call_key = ? AND e.slot >= 0 AND e.deterministic
AND (e.slot = ? OR e.slot = 0 AND e.duration <= ?) AND {_KEPT}
"""
_LOOKUP = f"{_CANDIDATES} AND e.waited = 0 LIMIT 1"
_LOOKUP_WAITED = f"""{_CANDIDATES}
AND CASE e.waited WHEN 0 THEN ? + e.duration <= ? ELSE e.waited BETWEEN ? AND ? END
ORDER BY abs(e.waited - ?) LIMIT 1
"""
_RECORDED = f"""
SELECT {EDGE_COLUMNS.format("e")}, {_KEPT} FROM edges e
WHERE e.state = ? AND e.call_key = ? AND e.slot = ? AND e.waited BETWEEN ? AND ?
ORDER BY e.id DESC LIMIT 1
"""
_EDGE_TO = f"SELECT {EDGE_COLUMNS.format('e')}, {_KEPT} FROM states s JOIN edges e ON e.id = s.edge WHERE s.hash = ?"
_INSERT_EDGE = """
INSERT INTO edges (state, call_key, slot, waited, next_state, timeout, exit_code, duration, timed_out, blocked,
                   truncated, quiet_s, deterministic, created, reason, extra, checksum, output, call, proven, hits)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)
"""
_MEND = """
UPDATE edges SET (next_state, timeout, exit_code, duration, timed_out, blocked, truncated, quiet_s, deterministic,
                  created, reason, extra, checksum, output, call, proven) =
                 (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
WHERE state = ? AND call_key = ? AND slot = ? AND waited = ?
RETURNING id
"""
# Unless another execution of the call was seen to leave something else behind.
_PROVE = """
UPDATE edges AS e SET proven = 1 WHERE e.id = ? AND NOT EXISTS (
    SELECT 1 FROM edges o WHERE o.state = e.state AND o.call_key = e.call_key AND o.id <> e.id
    AND o.timeout IS e.timeout AND o.waited = e.waited
    AND CASE WHEN json_valid(o.extra) AND json_valid(e.extra)
        THEN json_extract(o.extra, '$.digest') <> json_extract(e.extra, '$.digest') END)
"""
_DISPROVE = "UPDATE edges SET proven = 0 WHERE id = ?"
_RETIRE = "UPDATE edges SET slot = NULL, checksum = NULL, reason = ? WHERE id = ?"
_REINSTATE = """
UPDATE edges SET (slot, waited, next_state, timeout, exit_code, duration, timed_out, blocked, truncated, quiet_s,
                  deterministic, created, reason, extra, checksum, output, call, proven) =
                 (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
WHERE id = ?
"""
_INSERT_STATE = """
INSERT INTO states (hash, root, parent, edge, depth, private, created) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""


class Graph(Lineage, Snapshots, Leases, Rollouts, Tree, Forgetting):
    """A durable tool-call graph in one SQLite file. Thread-safe; several processes may have it open at once.

    Attributes:
        path: the file.
        owner: who uses it; written into rollouts.
    """

    def __init__(self, path: Path, owner: str = "") -> None:
        """Opens a graph, and makes it if it is missing.

        Args:
            path: the file; its directory is made if missing. It must be on a local file system.
            owner: the id of the process's `Owner`.

        Raises:
            TvsnapError: in one line, if it cannot be written, is damaged, locked, or of a newer version.
        """
        self.path = path
        self.owner = owner
        self._database = Database(path)
        self._pending = Pending()

    def close(self) -> None:
        """Writes what is pending and closes the file; safe to repeat."""
        try:
            self.flush()
        finally:
            self._database.close()

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ensure_root(self, info: RootInfo) -> None:
        """Adds a root state unless it is there."""
        hash = bytes.fromhex(info.hash)
        with self._database.read() as reader:
            if reader.execute("SELECT 1 FROM roots WHERE state = ?", (hash,)).fetchone():
                return
        with self._database.write() as cursor:
            cursor.execute(
                "INSERT INTO roots (state, image_name, image_digest, environment, limits, salt, created) "
                "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (hash, info.image_name, info.image_digest, info.environment, info.limits, info.salt, info.created),
            )
            cursor.execute(_INSERT_STATE, (hash, hash, None, None, 0, "", info.created))

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
        - it ended by itself within `timeout`, or was blocked until just this timeout;
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
            state_hash, call_key = bytes.fromhex(state), bytes.fromhex(call.key)
            if quiet_s == math.inf:
                row = reader.execute(_LOOKUP, (state_hash, call_key, timeout, timeout, backend)).fetchone()
            else:
                least, most = alike(waited)
                row = reader.execute(
                    _LOOKUP_WAITED,
                    (state_hash, call_key, timeout, timeout, backend, waited, quiet_s, least, most, waited),
                ).fetchone()
        except FAILURES as error:
            if is_undecodable(error):
                return None
            raise explain(self.path, error) from error
        finally:
            database.give_back(reader)
        if row is None:
            return None
        id, key_timeout, output, exit_code, duration, timed_out, blocked, truncated = row[:8]
        next_state, reason, hits, created, extra, slot, expected, packed_call, proven, recorded_wait, quiet = row[8:]
        facts = (
            key_timeout, exit_code, duration, timed_out, blocked, truncated, output, packed_call, recorded_wait, quiet,
        )  # fmt: skip
        try:
            if checksum(state_hash, call_key, slot, next_state, *facts) != expected:
                return None
        except UNREADABLE:
            return None
        result = ToolResult(unpack(output), exit_code, duration, timed_out == 1, blocked == 1, truncated == 1, "hit")
        return Edge(
            id,
            state,
            call,
            key_timeout,
            result,
            state if next_state is None else next_state.hex(),
            True,
            True,
            reason,
            hits,
            created,
            to_extra(extra),
            proven == 1,
            recorded_wait,
            math.inf if quiet is None else quiet,
        )

    def recorded(self, state: str, call: ToolCall, timeout: float | None = None) -> Edge | None:
        """Returns the shared edge of a call even where `lookup` does not: it took longer, or is not deterministic.

        Where time counts in the state, that is the latest.

        Args:
            state: where the call is made.
            call: the call.
            timeout: seconds, to find a call that was blocked until then; None to find one that ended by itself.
        """
        with self._database.read() as reader:
            key = (bytes.fromhex(state), bytes.fromhex(call.key), _slot(timeout, shared=True))
            try:
                found = _found(reader.execute(_RECORDED, ("", *key, 0.0, math.inf)))
            except DamagedRecord:
                return None
        return None if found is None else found[0]

    def record(
        self,
        state: str,
        call: ToolCall,
        result: ToolResult,
        *,
        next_state: str,
        task: str = "",
        timeout: float | None = None,
        shared: bool = True,
        deterministic: bool = True,
        reason: str = "",
        private: str = "",
        extra: Mapping[str, Any] | None = None,
        proven: bool = False,
        comparable: bool = False,
        waited: float = 0.0,
        quiet_s: float = math.inf,
        backend: str = "",
    ) -> Edge:
        """Records what a call returned and where it led, all or nothing.

        Of a shared call the first record counts for as long as it can answer (see `lookup`). One that led to a state
        which could not be kept is retired by the next, unless both led to the same state: then that is proven to be
        reproducible.

        Args:
            state: where the call was made.
            call: the call.
            result: what it returned.
            next_state: where it led; `state` itself if nothing changed.
            task: the task whose rollout made it; empty for none.
            timeout: seconds; only where the result depends on it, as that of a blocked call does.
            shared: whether it may answer calls; else it is kept for people.
            deterministic: whether the call can be expected to return the same again.
            reason: why it is not shared or not deterministic.
            private: why the branch from `next_state` on is not shared; below a private state, its reason holds.
            extra: what to keep with it; plain JSON.
            proven: whether the call leads to the same state whenever it is made, by its nature.
            comparable: whether `next_state` names what was left behind, so that who comes to the same has the same.
            waited: seconds that the state had been left to itself; only where that counts.
            quiet_s: seconds in which `next_state` does not change by itself.
            backend: whose snapshots keep a state.

        Returns:
            The edge. If the call was recorded before and that record still counts, that edge: its result, its
            `next_state` and whether it is deterministic may then differ from what was given.

        Raises:
            NotFound: if `state` is not in the graph; it may have been forgotten.
            UsageError: if a timed-out result is to be shared without its timeout, or `next_state` has another origin.
        """
        if shared and result.timed_out and timeout is None:
            raise UsageError("a call that timed out can be shared only with its timeout")
        now = time.time()
        state_hash, call_key = bytes.fromhex(state), bytes.fromhex(call.key)
        slot = _slot(timeout, shared=shared)
        after = None if next_state == state else bytes.fromhex(next_state)
        facts = (timeout, result.exit_code, result.duration, result.timed_out, result.blocked, result.truncated)
        output, packed_call = pack(result.output), pack(call.canonical)
        quiet = None if quiet_s == math.inf else quiet_s
        sum = checksum(state_hash, call_key, slot, after, *facts, output, packed_call, waited, quiet)
        row = (
            state_hash,
            call_key,
            slot,
            waited,
            after,
            *facts,
            quiet,
            deterministic,
            now,
            reason,
            canonical_json(extra) if extra else None,
            sum if shared and deterministic else None,
            output,
            packed_call,
            proven,
        )
        with self._database.write() as cursor:
            edge = _earlier(cursor, row, call, backend, comparable=comparable) if shared else None
            if edge is None:
                id = _insert(cursor, row, private)
                edge = Edge(
                    id, state, call, timeout, result.from_source("hit"), next_state, deterministic, shared, reason, 0,
                    now, dict(extra or {}), proven, waited, quiet_s,
                )  # fmt: skip
            cursor.execute(
                "INSERT OR IGNORE INTO visits (edge, task) VALUES (?, ?)", (edge.id, task_number(cursor, task))
            )
        if self._pending.due():
            self.flush()
        return edge

    def touch_hit(self, edge: Edge, task: str = "") -> None:
        """Counts that an edge answered a call of this task; in memory, until `flush`."""
        self._pending.hit(edge.id, task)

    def mark_nondeterministic(self, edge: Edge, reason: str) -> None:
        """Ends the serving of an edge's value, in all processes at once.

        Args:
            edge: the edge whose call was seen to return something else.
            reason: what differed, in words.
        """
        with self._database.write() as cursor:
            cursor.execute(
                "UPDATE edges SET deterministic = 0, checksum = NULL, reason = ? WHERE id = ?", (reason, edge.id)
            )

    def prove(self, edge: Edge) -> None:
        """Takes note that making a call again led to the same state; in vain if it was ever seen to lead elsewhere."""
        with self._database.write() as cursor:
            cursor.execute(_PROVE, (edge.id,))

    def note_refusal(self, state: str, backend: str, reason: str) -> None:
        """Keeps why a state could not be checkpointed, for people; see `Edge.refusal`.

        Args:
            state: the state; nothing is kept for a root, or one that is gone.
            backend: the backend that refused.
            reason: its reason, in words.
        """
        edge = self.edge_to(state)
        if edge is None or edge.refusal(backend) == reason:
            return
        extra = dict(edge.extra)
        extra[REFUSALS] = {**extra.get(REFUSALS, {}), backend: reason}
        with self._database.write() as cursor:
            cursor.execute("UPDATE edges SET extra = ? WHERE id = ?", (canonical_json(extra), edge.id))


def _insert(cursor: sqlite3.Cursor, row: Row, private: str) -> int:
    """Adds an edge and, if it changes the state, the state that it leads to.

    Args:
        cursor: in a transaction.
        row: the values that `_INSERT_EDGE` takes.
        private: why the branch is not shared.

    Returns:
        The edge's identity.

    Raises:
        NotFound: if the state that the call was made in is not in the graph.
        UsageError: if the state that it is said to lead to was made by another call.
    """
    above = _above(cursor, row[0])
    id = cursor.execute(_INSERT_EDGE, row).lastrowid
    assert id is not None
    _insert_state(cursor, id, row, above, private)
    return id


def _above(cursor: sqlite3.Cursor, state: bytes) -> Row:
    """Returns root, depth and privacy of the state that a call was made in."""
    above: Row | None = cursor.execute("SELECT root, depth, private FROM states WHERE hash = ?", (state,)).fetchone()
    if above is None:
        raise unknown_state(state.hex())
    return above


def _insert_state(cursor: sqlite3.Cursor, edge: int, row: Row, above: Row, private: str) -> None:
    """Adds the state that an edge leads to, if it leads to another."""
    state, next_state, created = row[0], row[4], row[13]
    if next_state is None:
        return
    root, depth, private_above = above
    cursor.execute(_INSERT_STATE, (next_state, root, state, edge, depth + 1, private_above or private, created))
    if cursor.rowcount == 0:
        raise UsageError(f"state {next_state.hex()[:12]} has another origin than this call")


def _earlier(cursor: sqlite3.Cursor, row: Row, call: ToolCall, backend: str, *, comparable: bool) -> Edge | None:
    """Returns the earlier record of a shared call if it counts and not `row`; retires one that cannot answer.

    Raises:
        NotFound: if the state that the call was made in is not in the graph.
        UsageError: if the state that the call is said to lead to was made by another call.
        DamagedRecord: if it is damaged and cannot be mended.
    """
    state, call_key, slot, waited, next_state = row[:5]
    above = _above(cursor, state)
    key = (backend, state, call_key, slot, waited, waited)
    try:
        found = _found(cursor.execute(_RECORDED, key))
    except DamagedRecord:
        if not _led_elsewhere(cursor, row):
            (id,) = cursor.execute(_MEND, (*row[4:], state, call_key, slot, waited)).fetchone()
            if next_state is not None and not _exists(cursor, next_state):
                _insert_state(cursor, id, row, above, "")
            found = _found(cursor.execute(_RECORDED, key))
            return None if found is None else found[0]
        found = None
    if found is not None:
        edge, kept = found
        if edge.next_state == (next_state or state).hex():
            return _proven(cursor, edge, row, comparable=comparable)
        if edge.proven and edge.digest and comparable:  # which is void by now
            cursor.execute(_DISPROVE, (edge.id,))
            edge, kept = _found(cursor.execute(_RECORDED, key)) or found
        if kept or not edge.deterministic:
            return edge
        cursor.execute(_RETIRE, ("what it led to could not be kept, and the call was made anew since", edge.id))
    if next_state is None or not _exists(cursor, next_state):
        return None
    again = _found(cursor.execute(_EDGE_TO, ("", next_state)))  # retired before
    if again is None or again[0].state != state.hex() or again[0].call.key != call.key:
        raise UsageError(f"state {next_state.hex()[:12]} has another origin than this call")
    return _reinstated(cursor, again[0], row, comparable=comparable)


def _led_elsewhere(cursor: sqlite3.Cursor, row: Row) -> bool:
    """Whether the damaged record of a call led to another state than `row`; that then keeps it as its origin."""
    (id,) = cursor.execute(
        "SELECT id FROM edges WHERE state = ? AND call_key = ? AND slot = ? AND waited = ?", row[:4]
    ).fetchone()
    made = cursor.execute("SELECT hash FROM states WHERE edge = ?", (id,)).fetchone()
    if made is None or made[0] == row[4]:
        return False
    created, call = row[13], row[18]
    reason = "its record was damaged, and the call was made anew since"
    unknown = (True, created, reason, None, None, pack(""), call, False)
    cursor.execute(_REINSTATE, (None, row[3], made[0], *row[5:12], *unknown, id))
    return True


def _proven(cursor: sqlite3.Cursor, edge: Edge, row: Row, *, comparable: bool) -> Edge:
    """Returns an edge to the state that another execution came to as well, which proves it if they were compared."""
    by_nature, created = row[-1], row[13]
    if edge.proven or not edge.changed or not (by_nature or (comparable and created - edge.created >= PROOF_APART)):
        return edge
    if by_nature:
        cursor.execute("UPDATE edges SET proven = 1 WHERE id = ?", (edge.id,))
    else:
        cursor.execute(_PROVE, (edge.id,))
    return replace(edge, proven=cursor.rowcount == 1)


def _reinstated(cursor: sqlite3.Cursor, edge: Edge, row: Row, *, comparable: bool) -> Edge:
    """Lets a retired edge answer again, with what a later execution that came to the same state returned."""
    by_nature, created = row[-1], row[13]
    cursor.execute(_REINSTATE, (*row[2:], edge.id))
    if not by_nature and comparable and created - edge.created >= PROOF_APART:
        cursor.execute(_PROVE, (edge.id,))
    found = _found(cursor.execute(_EDGE_TO, ("", row[4])))
    assert found is not None
    return found[0]


def _exists(cursor: sqlite3.Cursor, state: bytes) -> bool:
    return cursor.execute("SELECT 1 FROM states WHERE hash = ?", (state,)).fetchone() is not None


def _found(cursor: sqlite3.Cursor) -> tuple[Edge, bool] | None:
    """Returns the edge that a query found, and whether the state that it leads to is kept; None if there is none.

    Raises:
        DamagedRecord: it is not what was written.
    """
    try:
        row = cursor.fetchone()
    except FAILURES as error:
        if is_undecodable(error):
            raise DamagedRecord(f"the record of a call is damaged ({error}); make it again") from None
        raise
    return None if row is None else (to_edge(row[:-1]), bool(row[-1]))


def _slot(timeout: float | None, *, shared: bool) -> float | None:
    """Returns the value of the column `slot`, see `schema.sql`."""
    if timeout is not None and not timeout > 0:
        raise UsageError(f"a timeout must be more than 0 s, not {timeout}")
    if not shared:
        return None
    return 0.0 if timeout is None else timeout
