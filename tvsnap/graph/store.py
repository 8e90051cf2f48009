"""The tool-call graph: what was called in which state, what it returned, and where it led."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvsnap.calls import ToolCall, ToolResult, canonical_json
from tvsnap.errors import UsageError
from tvsnap.graph.base import unknown_state
from tvsnap.graph.database import FAILURES, Database, explain, is_undecodable
from tvsnap.graph.forget import Forgetting
from tvsnap.graph.leases import Leases
from tvsnap.graph.lineage import Lineage
from tvsnap.graph.model import REFUSALS, Edge, RootInfo
from tvsnap.graph.pending import Pending, task_number
from tvsnap.graph.rollouts import Rollouts
from tvsnap.graph.rows import (
    EDGE_COLUMNS,
    UNREADABLE,
    DamagedRecord,
    Row,
    checksum,
    pack,
    to_edge,
    to_extra,
    unpack,
)
from tvsnap.graph.snapshots import Snapshots
from tvsnap.graph.tree import Tree

# One range of the index edges_by_call: what is not shared has no slot, and so lies outside of it.
_LOOKUP = """
SELECT id, timeout, output, exit_code, duration, timed_out, blocked, truncated, next_state, reason, hits, created,
       extra, slot, checksum, call
FROM edges
WHERE state = ? AND call_key = ? AND slot >= 0 AND deterministic AND (slot = ? OR slot = 0 AND duration <= ?)
LIMIT 1
"""
_RECORDED = f"SELECT {EDGE_COLUMNS.format('e')} FROM edges e WHERE e.state = ? AND e.call_key = ? AND e.slot = ?"
_EDGE_TO = f"SELECT {EDGE_COLUMNS.format('e')} FROM states s JOIN edges e ON e.id = s.edge WHERE s.hash = ?"
_INSERT_EDGE = """
INSERT INTO edges (state, call_key, slot, next_state, timeout, exit_code, duration, timed_out, blocked, truncated,
                   deterministic, hits, created, reason, extra, checksum, output, call)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
_MEND = """
UPDATE edges SET (next_state, timeout, exit_code, duration, timed_out, blocked, truncated, deterministic, created,
                  reason, extra, checksum, output, call) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
WHERE state = ? AND call_key = ? AND slot = ?
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

    def lookup(self, state: str, call: ToolCall, timeout: float) -> Edge | None:
        """Returns the recorded answer to a call, None if there is none that may be given.

        It may be given if it is shared, was never seen to differ, and either ended by itself within `timeout`, or was
        blocked until just this timeout. What is not what was recorded, because the file was damaged, is not given: the
        call is then made again, and recorded anew. Writes nothing; may be called from an event loop.

        Args:
            state: where the call is made.
            call: the call.
            timeout: seconds that the caller would wait.

        Raises:
            TvsnapError: if the file cannot be read.
        """
        database = self._database
        reader = database.reader()
        try:
            state_hash, call_key = bytes.fromhex(state), bytes.fromhex(call.key)
            row = reader.execute(_LOOKUP, (state_hash, call_key, timeout, timeout)).fetchone()
        except FAILURES as error:
            if is_undecodable(error):
                return None
            raise explain(self.path, error) from error
        finally:
            database.give_back(reader)
        if row is None:
            return None
        id, key_timeout, output, exit_code, duration, timed_out, blocked, truncated = row[:8]
        next_state, reason, hits, created, extra, slot, expected, packed_call = row[8:]
        facts = (key_timeout, exit_code, duration, timed_out, blocked, truncated, output, packed_call)
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
        )

    def recorded(self, state: str, call: ToolCall, timeout: float | None = None) -> Edge | None:
        """Returns the shared edge of a call even where `lookup` does not: it took longer, or is not deterministic.

        Args:
            state: where the call is made.
            call: the call.
            timeout: seconds, to find a call that was blocked until then; None to find one that ended by itself.
        """
        with self._database.read() as reader:
            key = (bytes.fromhex(state), bytes.fromhex(call.key), _slot(timeout, shared=True))
            try:
                return _edge(reader.execute(_RECORDED, key))
            except DamagedRecord:
                return None

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
        lease_owner: str = "",
    ) -> Edge:
        """Records what a call returned and where it led, all or nothing. The first to record a shared call wins.

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
            lease_owner: whose lease for this call ends with this; empty for none.

        Returns:
            The edge. If the call was recorded before, that edge: its result, its `next_state` and whether it is
            deterministic may then differ from what was given.

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
        answers = shared and deterministic
        row = (
            state_hash,
            call_key,
            slot,
            after,
            *facts,
            deterministic,
            now,
            reason,
            canonical_json(extra) if extra else None,
            checksum(state_hash, call_key, slot, after, *facts, output, packed_call) if answers else None,
            output,
            packed_call,
        )
        with self._database.write() as cursor:
            id = _insert(cursor, row, private)
            if id is None:
                edge = _recorded_before(cursor, row, call)
            else:
                result = result.from_source("hit")
                kept = dict(extra or {})
                edge = Edge(id, state, call, timeout, result, next_state, deterministic, shared, reason, 0, now, kept)
            cursor.execute(
                "INSERT OR IGNORE INTO visits (edge, task) VALUES (?, ?)", (edge.id, task_number(cursor, task))
            )
            if lease_owner:
                cursor.execute(
                    "DELETE FROM leases WHERE state = ? AND call_key = ? AND owner = ?",
                    (state_hash, call_key, lease_owner),
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

    def note_refusal(self, state: str, backend: str, reason: str) -> None:
        """Keeps why a state could not be checkpointed, for people; see `Edge.refusal`.

        Args:
            state: the state; nothing is kept for a root, or one that is gone.
            backend: the backend that refused.
            reason: its reason, in words.
        """
        edge = self.edge_to(state)
        if edge is None:
            return
        extra = dict(edge.extra)
        extra[REFUSALS] = {**extra.get(REFUSALS, {}), backend: reason}
        with self._database.write() as cursor:
            cursor.execute("UPDATE edges SET extra = ? WHERE id = ?", (canonical_json(extra), edge.id))


def _insert(cursor: sqlite3.Cursor, row: Row, private: str) -> int | None:
    """Adds an edge and, if it changes the state, the state that it leads to.

    Args:
        cursor: in a transaction.
        row: the values that `_INSERT_EDGE` takes.
        private: why the branch is not shared.

    Returns:
        The edge's identity; None if the call, or the state that it leads to, has been recorded before.

    Raises:
        NotFound: if the state that the call was made in is not in the graph.
    """
    state, next_state, created = row[0], row[3], row[11]
    above = cursor.execute("SELECT root, depth, private FROM states WHERE hash = ?", (state,)).fetchone()
    if above is None:
        raise unknown_state(state.hex())
    if next_state is not None and cursor.execute("SELECT 1 FROM states WHERE hash = ?", (next_state,)).fetchone():
        return None
    id = cursor.execute(_INSERT_EDGE, row).lastrowid
    if cursor.rowcount == 0:
        return None
    if next_state is not None:
        root, depth, private_above = above
        cursor.execute(_INSERT_STATE, (next_state, root, state, id, depth + 1, private_above or private, created))
    return id


def _recorded_before(cursor: sqlite3.Cursor, row: Row, call: ToolCall) -> Edge:
    """Returns the edge for which `_insert` added nothing; what was recorded first counts, unless it is damaged.

    Raises:
        UsageError: if the state that the call is said to lead to was made by another call.
        DamagedRecord: if it is damaged and cannot be mended.
    """
    state, call_key, slot, next_state = row[:4]
    try:
        edge = _edge(cursor.execute(_RECORDED, (state, call_key, slot)))
    except DamagedRecord:
        cursor.execute(_MEND, (*row[3:], state, call_key, slot))
        edge = _edge(cursor.execute(_RECORDED, (state, call_key, slot)))
    if edge is None:
        edge = _edge(cursor.execute(_EDGE_TO, (next_state,)))
    if edge is None or edge.state != state.hex() or edge.call.key != call.key:
        raise UsageError(f"state {next_state.hex()[:12]} has another origin than this call")
    return edge


def _edge(cursor: sqlite3.Cursor) -> Edge | None:
    """Returns the edge that a query found; None if there is none.

    Raises:
        DamagedRecord: it is not what was written.
    """
    try:
        row = cursor.fetchone()
    except FAILURES as error:
        if is_undecodable(error):
            raise DamagedRecord(f"the record of a call is damaged ({error}); make it again") from None
        raise
    return None if row is None else to_edge(row)


def _slot(timeout: float | None, *, shared: bool) -> float | None:
    """Returns the value of the column `slot`, see `schema.sql`."""
    if timeout is not None and not timeout > 0:
        raise UsageError(f"a timeout must be more than 0 s, not {timeout}")
    if not shared:
        return None
    return 0.0 if timeout is None else timeout
