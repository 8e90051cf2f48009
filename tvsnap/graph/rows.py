"""Between the values of `model` and the columns of `schema.sql`."""

from __future__ import annotations

import functools
import json
import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tvsnap.graph.model import ACTIVE, REFUSALS, CallSummary, Edge, Snapshot, State
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.observations import Captures

COMPRESS_ABOVE = 4096  # bytes; shorter text gains too little for what inflating it costs a hit

STATE_COLUMNS = "{0}.hash, {0}.root, {0}.parent, {0}.depth, {0}.private, {0}.created"
EDGE_COLUMNS = (
    "{0}.id, {0}.state, {0}.timeout, {0}.exit_code, {0}.duration, {0}.timed_out, {0}.blocked, {0}.truncated, "
    "{0}.next_state, {0}.deterministic, {0}.slot, {0}.reason, {0}.hits, {0}.created, {0}.extra, {0}.output, {0}.call, "
    "{0}.call_key, {0}.checksum, {0}.proven, {0}.waited, {0}.quiet_s"
)
SUMMARY_COLUMNS = (
    "{0}.id, {0}.call, {0}.timeout, {0}.exit_code, {0}.duration, {0}.timed_out, {0}.truncated, {0}.deterministic, "
    "{0}.slot, {0}.reason, {0}.hits, {0}.proven, {0}.waited, {0}.created, {0}.extra"
)
SNAPSHOT_COLUMNS = (
    "{0}.state, {0}.id, {0}.backend, {0}.size, {0}.files, {0}.processes, {0}.shell, {0}.checkpoint_s, {0}.fork_s, "
    "{0}.commands, {0}.created, {0}.last_used, {0}.forks, {0}.pinned, {0}.age_s"
)
STATE_WIDTH = STATE_COLUMNS.count(",") + 1
SUMMARY_WIDTH = SUMMARY_COLUMNS.count(",") + 1
SNAPSHOT_WIDTH = SNAPSHOT_COLUMNS.count(",") + 1

UNREADABLE = (struct.error, zlib.error, ValueError, TypeError, KeyError, AttributeError)
"""What comes of values that SQLite gives back and nobody wrote."""
_FACTS = struct.Struct("<dddq5?q")
_TIMES = struct.Struct("<dd")
_NO_EXIT_CODE = -1 << 62

Row = Sequence[Any]
V = TypeVar("V")


class DamagedRecord(InfrastructureError):
    """A row is not what was written: a fault of the disk or of memory that SQLite has not noticed."""


def pack(text: str) -> str | bytes:
    """Returns `text` as it is stored: compressed if it is long or holds what UTF-8 has no place for."""
    if len(text) <= COMPRESS_ABOVE:
        try:
            if len(text.encode()) <= COMPRESS_ABOVE:
                return text
        except UnicodeEncodeError:
            pass
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 1)


def unpack(stored: str | bytes) -> str:
    """Returns the text that `pack` was given."""
    return stored if isinstance(stored, str) else zlib.decompress(stored).decode("utf-8", "surrogatepass")


def checksum(
    state: bytes,
    call_key: bytes,
    slot: float | None,
    next_state: bytes | None,
    timeout: float | None,
    exit_code: int | None,
    duration: float,
    timed_out: int,
    blocked: int,
    truncated: int,
    output: str | bytes,
    call: str | bytes,
    waited: float = 0.0,
    quiet_s: float | None = None,
) -> int:
    """Returns the CRC-32 of all that an answer rests on, as it is stored: SQLite keeps no checksums of its own.

    Where time does not count it is what it was before there were `waited` and `quiet_s`.

    Raises:
        UNREADABLE: these are not even values of the right kind.
    """
    data, canonical = _bytes(output), _bytes(call)
    facts = _FACTS.pack(
        duration,
        -1.0 if slot is None else slot,
        -1.0 if timeout is None else timeout,
        _NO_EXIT_CODE if exit_code is None else exit_code,
        timed_out,
        blocked,
        truncated,
        data is output,
        canonical is call,
        len(data),
    )
    if waited or quiet_s is not None:
        facts += _TIMES.pack(waited, -1.0 if quiet_s is None else quiet_s)
    crc = zlib.crc32(state + call_key + (next_state or b"") + facts)
    return zlib.crc32(canonical, zlib.crc32(data, crc))


def _bytes(stored: str | bytes) -> bytes:
    return stored.encode() if isinstance(stored, str) else stored


def to_extra(text: str | None) -> Mapping[str, Any]:
    """Returns what was kept with an edge; nothing if it cannot be read: no answer rests on it."""
    if text:
        try:
            return dict(json.loads(text))
        except UNREADABLE:
            pass
    return {}


def _readable(convert: Callable[[Row], V]) -> Callable[[Row], V]:
    """Makes values that nobody can have written an error of ours."""

    @functools.wraps(convert)
    def converted(row: Row) -> V:
        try:
            return convert(row)
        except UNREADABLE as error:
            raise DamagedRecord(f"a record of the graph is damaged ({error}); make a rollout to it again") from None

    return converted


@_readable
def to_state(row: Row) -> State:
    """Returns the state in a row of `STATE_COLUMNS`."""
    hash, root, parent, depth, private, created = row
    return State(hash.hex(), root.hex(), None if parent is None else parent.hex(), depth, private, created)


@_readable
def to_edge(row: Row) -> Edge:
    """Returns the edge in a row of `EDGE_COLUMNS`.

    Raises:
        DamagedRecord: it is not what was written.
    """
    (id, state, timeout, exit_code, duration, timed_out, blocked, truncated, next_state) = row[:9]
    (deterministic, slot, reason, hits, created, extra, output, packed_call, call_key, expected) = row[9:19]
    proven, waited, quiet_s = row[19:]
    try:
        call = ToolCall.from_canonical(unpack(packed_call))
        sound = call.key == call_key.hex()
        if deterministic and slot is not None:
            facts = (timeout, exit_code, duration, timed_out, blocked, truncated, output, packed_call, waited, quiet_s)
            sound = sound and checksum(state, call_key, slot, next_state, *facts) == expected
        result = ToolResult(unpack(output), exit_code, duration, bool(timed_out), bool(blocked), bool(truncated), "hit")
    except UNREADABLE:
        sound = False
    if not sound:
        raise DamagedRecord(
            f"the graph's record of call {id} is damaged; make it again from a rollout, or tvsnap forget"
        )
    return Edge(
        id,
        state.hex(),
        call,
        timeout,
        result,
        (state if next_state is None else next_state).hex(),
        bool(deterministic),
        slot is not None,
        reason,
        hits,
        created,
        to_extra(extra),
        bool(proven),
        waited,
        math.inf if quiet_s is None else quiet_s,
    )


@_readable
def to_summary(row: Row) -> CallSummary:
    """Returns the edge without its output in a row of `SUMMARY_COLUMNS`."""
    (id, call, timeout, exit_code, duration, timed_out, truncated, deterministic, slot, reason, hits) = row[:11]
    proven, waited, created, extra = row[11:]
    kept = to_extra(extra)
    return CallSummary(
        id,
        ToolCall.from_canonical(unpack(call)),
        timeout,
        exit_code,
        duration,
        bool(timed_out),
        bool(truncated),
        bool(deterministic),
        slot is not None,
        reason,
        hits,
        created,
        dict(kept.get(REFUSALS, {})),
        bool(proven),
        waited,
        str(kept.get(ACTIVE, "")),
    )


@_readable
def to_snapshot(row: Row) -> Snapshot:
    """Returns the snapshot in a row of `SNAPSHOT_COLUMNS`."""
    state, id, backend, size, files, processes, shell, checkpoint_s, fork_s, commands = row[:10]
    created, last_used, forks, pinned, age_s = row[10:]
    return Snapshot(
        state.hex(),
        id,
        backend,
        size,
        Captures(bool(files), bool(processes), bool(shell)),
        checkpoint_s,
        fork_s,
        tuple(json.loads(commands)),
        created,
        last_used,
        forks,
        bool(pinned),
        age_s,
    )
