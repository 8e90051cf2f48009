"""Between the values of `model` and the columns of `schema.sql`."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

from tvsnap.backends.base import Captures
from tvsnap.calls import ToolCall, ToolResult
from tvsnap.graph.model import CallSummary, Edge, Snapshot, State

COMPRESS_ABOVE = 4096  # bytes; shorter text gains too little for what inflating it costs a hit

STATE_COLUMNS = "{0}.hash, {0}.root, {0}.parent, {0}.depth, {0}.private, {0}.created"
EDGE_COLUMNS = (
    "{0}.id, {0}.state, {0}.timeout, {0}.exit_code, {0}.duration, {0}.timed_out, {0}.blocked, {0}.truncated, "
    "{0}.next_state, {0}.deterministic, {0}.slot, {0}.reason, {0}.hits, {0}.created, {0}.extra, {0}.output, {0}.call"
)
SUMMARY_COLUMNS = (
    "{0}.id, {0}.call, {0}.timeout, {0}.exit_code, {0}.duration, {0}.timed_out, {0}.truncated, {0}.deterministic, "
    "{0}.slot, {0}.reason, {0}.hits, {0}.created"
)
SNAPSHOT_COLUMNS = (
    "{0}.state, {0}.id, {0}.backend, {0}.size, {0}.files, {0}.processes, {0}.shell, {0}.checkpoint_s, {0}.fork_s, "
    "{0}.commands, {0}.created, {0}.last_used, {0}.forks"
)
STATE_WIDTH = STATE_COLUMNS.count(",") + 1
SUMMARY_WIDTH = SUMMARY_COLUMNS.count(",") + 1
SNAPSHOT_WIDTH = SNAPSHOT_COLUMNS.count(",") + 1

Row = Sequence[Any]


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


def to_state(row: Row) -> State:
    """Returns the state in a row of `STATE_COLUMNS`."""
    hash, root, parent, depth, private, created = row
    return State(hash.hex(), root.hex(), None if parent is None else parent.hex(), depth, private, created)


def to_edge(row: Row) -> Edge:
    """Returns the edge in a row of `EDGE_COLUMNS`."""
    (id, state, timeout, exit_code, duration, timed_out, blocked, truncated, next_state) = row[:9]
    (deterministic, slot, reason, hits, created, extra, output, call) = row[9:]
    result = ToolResult(unpack(output), exit_code, duration, bool(timed_out), bool(blocked), bool(truncated), "hit")
    return Edge(
        id,
        state.hex(),
        ToolCall.from_canonical(unpack(call)),
        timeout,
        result,
        (state if next_state is None else next_state).hex(),
        bool(deterministic),
        slot is not None,
        reason,
        hits,
        created,
        json.loads(extra) if extra else {},
    )


def to_summary(row: Row) -> CallSummary:
    """Returns the edge without its output in a row of `SUMMARY_COLUMNS`."""
    id, call, timeout, exit_code, duration, timed_out, truncated, deterministic, slot, reason, hits, created = row
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
    )


def to_snapshot(row: Row) -> Snapshot:
    """Returns the snapshot in a row of `SNAPSHOT_COLUMNS`."""
    state, id, backend, size, files, processes, shell, checkpoint_s, fork_s, commands, created, last_used, forks = row
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
    )
