"""Records calls in the graph: their results, the states that they led to, and evidence of later executions."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tvsnap.graph.answers import KEPT
from tvsnap.graph.insertion import insert_call, insert_state, insert_steps, state_above, task_number
from tvsnap.graph.lineage import Lineage
from tvsnap.graph.model import Edge, StepRow
from tvsnap.graph.rows import (
    CHECKED,
    EDGE_COLUMNS,
    UNREAD,
    DamagedRecord,
    EdgeRow,
    Row,
    as_edge,
    checksum,
    encodable,
    from_mapping,
    pack,
    pack_parts,
    pack_times,
    to_edge,
    unpack_times,
)
from tvsnap.host.database import FAILURES, is_undecodable
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import UsageError

PROOF_APART = 2.0
"""Least seconds between two executions whose equal results prove anything: a displayed time changes in between."""


def far_apart(edge: Edge, at: float) -> bool:
    """Returns whether an execution at a time (seconds since 1970) is late enough after an edge's to prove anything."""
    return at - edge.created >= PROOF_APART


_KEY = ("state", "call_key", "slot", "waited")
"""The first fields of `EdgeRow`, which identify a shared edge."""
_AFTER_CALL = 2
"""Index of the first field of `EdgeRow` that may differ between edges of the same call."""
assert EdgeRow._fields[: len(_KEY)] == _KEY


def _assigned(fields: tuple[str, ...]) -> str:
    """Returns the assignment of an UPDATE that sets `fields`."""
    return f"({', '.join(fields)}) = ({', '.join('?' * len(fields))})"


_BY_KEY = " AND ".join(f"{name} = ?" for name in _KEY)
_RECORDED = f"""
SELECT {EDGE_COLUMNS.format("e")}, {KEPT} FROM edges e
WHERE e.state = ? AND e.call_key = ? AND e.slot = ? AND e.waited BETWEEN ? AND ?
ORDER BY e.id DESC LIMIT 1
"""
_EDGE_TO = f"SELECT {EDGE_COLUMNS.format('e')}, {KEPT} FROM states s JOIN edges e ON e.id = s.edge WHERE s.hash = ?"
_MEND = f"UPDATE edges SET {_assigned(EdgeRow._fields[len(_KEY) :])} WHERE {_BY_KEY} RETURNING id"
# Unless another execution of the call was seen to leave something else behind.
PROVE = """
UPDATE edges AS e SET proven = 1 WHERE e.id = ? AND NOT EXISTS (
    SELECT 1 FROM edges o WHERE o.state = e.state AND o.call_key = e.call_key AND o.id <> e.id
    AND o.timeout IS e.timeout AND o.waited = e.waited AND o.digest <> e.digest)
"""
_DISPROVE = "UPDATE edges SET proven = 0 WHERE id = ?"
_TIMES = "SELECT times FROM edges WHERE id = ?"
_RETIRE = "UPDATE edges SET slot = NULL, checksum = NULL, reason = ? WHERE id = ?"
_REINSTATE = f"UPDATE edges SET {_assigned(EdgeRow._fields[_AFTER_CALL:])} WHERE id = ?"


@dataclass(frozen=True)
class NewEdge:
    """A call that was made, with its result and the state that it led to.

    Attributes:
        state: the state in which the call was made.
        call: the call.
        result: its result.
        next_state: the state that it led to; `state` itself if nothing changed.
        task: the task whose rollout made it; empty for none.
        timeout: seconds; only if the result depends on it, as that of a blocked call does.
        shared: whether it may answer calls; otherwise it is only shown to people.
        deterministic: whether the call can be expected to return the same again.
        reason: the reason why it is not shared or not deterministic; None if it is both.
        private: the reason why the branch from `next_state` on is not shared; below a private state, that state's
            reason counts.
        digest, active: see `Edge`.
        times: the modification times of the files that it changed, by path, nanoseconds since the epoch; None if it
            changed none, or they are not known.
        proven: whether the call leads to the same state whenever it is made, by its nature.
        comparable: whether equal names of `next_state` mean equal aftermaths.
        waited: seconds that the rollout had waited in the state; only if that counts.
        still: the shortest and the longest wait after which the call would have found the same; None if not known.
        quiet_s: seconds during which `next_state` does not change by itself.
        backend: the backend whose snapshots keep states.
        is_late: another execution of the call ended earlier, and the state that it led to is still being kept.
        on_host: whether it was made in no sandbox.
        asked, grade: see `Edge`.
        ended: the time of its end, seconds since the epoch; by default that of its record.
        step: the call as a step of its rollout, to be recorded with it.
    """

    state: str
    call: ToolCall
    result: ToolResult
    next_state: str
    task: str = ""
    timeout: float | None = None
    shared: bool = True
    deterministic: bool = True
    reason: str | None = None
    private: str | None = None
    digest: str | None = None
    active: str | None = None
    times: Mapping[str, int] | None = None
    proven: bool = False
    comparable: bool = False
    waited: float = 0.0
    still: tuple[float, float] | None = None
    quiet_s: float = math.inf
    backend: str = ""
    is_late: bool = False
    on_host: bool = False
    asked: Sequence[str] = ()
    grade: str | None = None
    ended: float | None = None
    step: StepRow | None = None


class Edges(Lineage):
    """The part of `Graph` that records calls."""

    def recorded(self, state: str, call: ToolCall, timeout: float | None = None) -> Edge | None:
        """Returns the shared edge of a call, even if `lookup` does not: it took longer, or is not deterministic.

        If time counts in the state, that is the latest one.

        Args:
            state: the state in which the call is made.
            call: the call.
            timeout: seconds, to find a call that was blocked until then; None to find one that ended by itself.
        """
        with self._database.read() as reader:
            key = (bytes.fromhex(state), bytes.fromhex(call.key), _slot(timeout, shared=True))
            try:
                record = _fetch(reader.execute(_RECORDED, ("", *key, 0.0, math.inf)), call)
            except DamagedRecord:
                return None
        return None if record is None else record[0]

    def file_times(self, edge: Edge) -> dict[str, int] | None:
        """Returns the modification times of the files that a recorded call changed.

        Args:
            edge: the record.

        Returns:
            The times in nanoseconds since the epoch, by path; None if it changed none, or they are not known.
        """
        rows = self._rows(_TIMES, (edge.id,))
        return unpack_times(rows[0][0]) if rows else None

    def record(self, new: NewEdge) -> Edge:
        """Records a call's result and the state that it led to, all or nothing.

        Of a shared call the first record counts for as long as it can answer (see `lookup`). A record whose state could
        not be kept is retired by the next one that is not late, unless both led to the same state, which is then proven
        to be reproducible.

        Args:
            new: the call.

        Returns:
            The edge. If the call was recorded before and that record still counts, that edge: its result, its
            `next_state` and whether it is deterministic may then differ from those of `new`.

        Raises:
            NotFound: `new.state` is not in the graph; it may have been forgotten.
            UsageError: a timed-out result is to be shared without its timeout, or `new.next_state` has another origin.
        """
        if new.shared and new.result.timed_out and new.timeout is None:
            raise UsageError("a call that timed out can be shared only with its timeout")
        self._write_calls()
        row = _row(new, _slot(new.timeout, shared=new.shared))
        if new.shared and new.deterministic:
            row = row._replace(checksum=checksum(*row[:CHECKED]))
        with self._database.write() as cursor:
            edge, proves = None, False
            above = state_above(cursor, row.state)
            if new.shared:
                edge, proves = _earlier(cursor, row, above, new.backend, comparable=new.comparable, is_late=new.is_late)
            if edge is None:
                id = insert_call(cursor, row, above, new.private)
                if proves:
                    cursor.execute(PROVE, (id,))
                    row = row._replace(proven=cursor.rowcount == 1)
                edge = as_edge((id, *row[:-UNREAD], 0, None), new.call)
            elif row.times is not None:
                edge = replace(edge, times=unpack_times(*cursor.execute(_TIMES, (edge.id,)).fetchone()))
            cursor.execute(
                "INSERT OR IGNORE INTO visits (edge, task) VALUES (?, ?)", (edge.id, task_number(cursor, new.task))
            )
            if new.step is not None:
                insert_steps(cursor, (new.step._replace(edge=edge.id),))
        if self._pending.schedule():
            self.flush()
        return edge

    def record_later(self, new: NewEdge) -> None:
        """Keeps a call that answers nobody in memory, for people, until `flush` or until its state is read.

        If the process is killed before, or the disk is full, it is lost.

        Args:
            new: the call, in a private branch: neither it nor the calls after it are shared, for its `reason`.
        """
        self._pending.call(_row(new, None), new.reason, new.task, new.step)
        if self._pending.schedule():
            self.flush()

    def mark_nondeterministic(self, edge: Edge, reason: str) -> None:
        """Stops an edge from answering calls, in all processes at once, because its call returned something else.

        Args:
            edge: the edge.
            reason: the difference, in words.
        """
        self._change("UPDATE edges SET deterministic = 0, checksum = NULL, reason = ? WHERE id = ?", (reason, edge.id))

    def retire(self, edge: Edge, reason: str) -> None:
        """Stops an edge from answering calls, so that the next execution of its call takes its place.

        Args:
            edge: the edge.
            reason: why, in words.
        """
        self._change(_RETIRE, (reason, edge.id))

    def prove(self, edge: Edge) -> None:
        """Notes that making a call again led to the same state; ignored if it ever led to another one."""
        self._change(PROVE, (edge.id,))

    def note_activity(self, state: str, quiet_s: float, active: str | None) -> None:
        """Records the effect of time in a state of a private branch that was not observed before.

        Args:
            state: the state.
            quiet_s, active: see `Edge`.
        """
        self._change(
            "UPDATE edges SET quiet_s = ?, active = ? "
            "WHERE slot IS NULL AND id = (SELECT edge FROM states WHERE hash = ?)",
            (None if quiet_s == math.inf else quiet_s, active, bytes.fromhex(state)),
        )

    def note_refusal(self, state: str, backend: str, reason: str) -> None:
        """Records, for people, the reason why a state could not be checkpointed; see `Edge.refusals`.

        Args:
            state: the state; nothing is recorded for a root, or a forgotten state.
            backend: the backend that refused.
            reason: its reason, in words.
        """
        reason = encodable(reason)
        edge = self.edge_to(state)
        if edge is None or edge.refusals.get(backend) == reason:
            return
        refusals = from_mapping({**edge.refusals, backend: reason})
        self._change("UPDATE edges SET refusals = ? WHERE id = ?", (refusals, edge.id))


def _row(new: NewEdge, slot: float | None) -> EdgeRow:
    """Returns the row of a call, without a checksum."""
    call, result = new.call, new.result
    output, parts = pack_parts(result.parts)
    return EdgeRow(
        bytes.fromhex(new.state),
        bytes.fromhex(call.key),
        slot,
        new.waited,
        None if new.next_state == new.state else bytes.fromhex(new.next_state),
        new.timeout,
        result.exit_code,
        result.duration,
        result.timed_out,
        result.blocked,
        result.truncated,
        None if new.quiet_s == math.inf else new.quiet_s,
        output,
        pack(call.canonical),
        parts,
        None if new.still is None else new.still[0],
        None if new.still is None else new.still[1],
        new.deterministic,
        time.time() if new.ended is None else new.ended,
        new.reason or "",
        new.digest,
        new.active,
        None,
        from_mapping(result.cost),
        new.proven,
        new.on_host,
        "\n".join(new.asked) or None,
        result.strain,
        new.grade,
        result.processor_s,
        None if new.times is None else pack_times(new.times),
    )


def _earlier(
    cursor: sqlite3.Cursor, row: EdgeRow, above: Row, backend: str, *, comparable: bool, is_late: bool
) -> tuple[Edge | None, bool]:
    """Returns the earlier record of a shared call if it counts and `row` does not; retires one that cannot answer.

    `above` is what `state_above` returns for the state in which the call was made; `is_late` as in `NewEdge`.

    Returns:
        The earlier record, or None; and whether a retired one has the same aftermath, which proves `row`.

    Raises:
        UsageError: another call made the next state of this one.
        DamagedRecord: the record is damaged and cannot be repaired.
    """
    key = (backend, row.state, row.call_key, row.slot, row.waited, row.waited)
    try:
        record = _fetch(cursor.execute(_RECORDED, key))
    except DamagedRecord:
        if not _led_elsewhere(cursor, row):
            (id,) = cursor.execute(_MEND, (*row[len(_KEY) :], *row[: len(_KEY)])).fetchone()
            if row.next_state is not None and not _exists(cursor, row.next_state):
                insert_state(cursor, id, row, above, None)
            record = _fetch(cursor.execute(_RECORDED, key))
            return (None if record is None else record[0]), False
        record = None
    proves = False
    if record is not None:
        edge, is_kept = record
        if edge.next_state == (row.next_state or row.state).hex():
            return _proven(cursor, edge, row, comparable=comparable), False
        same = comparable and edge.digest == row.digest  # the results differ, for example by the time of a file
        if edge.proven and edge.digest and comparable and not same:  # the proof is refuted
            cursor.execute(_DISPROVE, (edge.id,))
            edge, is_kept = _fetch(cursor.execute(_RECORDED, key)) or record
        if is_kept or is_late or not edge.deterministic:
            return edge, False
        proves = same and far_apart(edge, row.created)
        cursor.execute(_RETIRE, ("what it led to could not be kept, and the call was made anew since", edge.id))
    if row.next_state is None or not _exists(cursor, row.next_state):
        return None, proves
    again = _fetch(cursor.execute(_EDGE_TO, ("", row.next_state)))  # retired before
    if again is None or again[0].state != row.state.hex() or again[0].call.key != row.call_key.hex():
        raise UsageError(f"state {row.next_state.hex()[:12]} has another origin than this call")
    return _reinstated(cursor, again[0], row, comparable=comparable), False


def _led_elsewhere(cursor: sqlite3.Cursor, row: EdgeRow) -> bool:
    """Keeps the damaged record of a call as the origin of its state, if that is another one than that of `row`.

    Returns whether it is another one.
    """
    (id,) = cursor.execute(f"SELECT id FROM edges WHERE {_BY_KEY}", row[: len(_KEY)]).fetchone()
    reached = cursor.execute("SELECT hash FROM states WHERE edge = ?", (id,)).fetchone()
    if reached is None or reached[0] == row.next_state:
        return False
    unknown = row._replace(
        slot=None,
        next_state=reached[0],
        deterministic=True,
        reason="its record was damaged, and the call was made anew since",
        digest=None,
        active=None,
        checksum=None,
        cost=None,
        parts=None,
        output=pack(""),
        proven=False,
        asked=None,
        strain=None,
        grade=None,
        processor_s=None,
        times=None,
    )
    cursor.execute(_REINSTATE, (*unknown[_AFTER_CALL:], id))
    return True


def _proven(cursor: sqlite3.Cursor, edge: Edge, row: EdgeRow, *, comparable: bool) -> Edge:
    """Returns an edge to a state that another execution reached, too; this proves it if both were compared."""
    apart = far_apart(edge, row.created)
    if edge.proven or not edge.changed or not (row.proven or (comparable and apart)):
        return edge
    if row.proven:
        cursor.execute("UPDATE edges SET proven = 1 WHERE id = ?", (edge.id,))
    else:
        cursor.execute(PROVE, (edge.id,))
    return replace(edge, proven=cursor.rowcount == 1)


def _reinstated(cursor: sqlite3.Cursor, edge: Edge, row: EdgeRow, *, comparable: bool) -> Edge:
    """Makes a retired edge answer again, with the result of a later execution that reached the same state."""
    (times,) = cursor.execute(_TIMES, (edge.id,)).fetchone()  # others stand in the state, with files of these times
    cursor.execute(_REINSTATE, (*row._replace(times=times or row.times)[_AFTER_CALL:], edge.id))
    if not row.proven and comparable and far_apart(edge, row.created):
        cursor.execute(PROVE, (edge.id,))
    record = _fetch(cursor.execute(_EDGE_TO, ("", row.next_state)))
    assert record is not None
    return record[0]


def _exists(cursor: sqlite3.Cursor, state: bytes) -> bool:
    return cursor.execute("SELECT 1 FROM states WHERE hash = ?", (state,)).fetchone() is not None


def _fetch(cursor: sqlite3.Cursor, call: ToolCall | None = None) -> tuple[Edge, bool] | None:
    """Returns the edge of a query, and whether the state that it leads to is kept; None if there is none.

    `call` is the one by which it was found, if it was.

    Raises:
        DamagedRecord: its checksum is wrong.
    """
    try:
        row = cursor.fetchone()
    except FAILURES as error:
        if is_undecodable(error):
            raise DamagedRecord(f"the record of a call is damaged ({error}); make it again") from None
        raise
    return None if row is None else (to_edge(row[:-1], call), bool(row[-1]))


def _slot(timeout: float | None, *, shared: bool) -> float | None:
    """Returns the value of the column `slot`, see `schema.sql`."""
    if timeout is not None and not timeout > 0:
        raise UsageError(f"a timeout must be more than 0 s, not {timeout}")
    if not shared:
        return None
    return 0.0 if timeout is None else timeout
