"""Converts between the values of `model` and the columns of `schema.sql`."""

from __future__ import annotations

import functools
import json
import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar, cast

from tvsnap.graph.model import Edge, Snapshot, State
from tvsnap.model.calls import TEXT, Part, ToolCall, ToolResult, canonical_json
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.observations import Captures

COMPRESS_ABOVE = 4096  # bytes; compressing shorter text saves less than decompressing costs a hit

ROOT_COLUMNS = "state, image_name, image_digest, environment, limits, salt, created, network"
STATE_COLUMNS = "{0}.hash, {0}.root, {0}.parent, {0}.depth, {0}.private, {0}.created"
SNAPSHOT_COLUMNS = (
    "{0}.state, {0}.id, {0}.backend, {0}.size, {0}.files, {0}.processes, {0}.shell, {0}.checkpoint_s, {0}.fork_s, "
    "{0}.commands, {0}.created, {0}.last_used, {0}.forks, {0}.pinned, {0}.age_s"
)
STATE_WIDTH = STATE_COLUMNS.count(",") + 1
SNAPSHOT_WIDTH = SNAPSHOT_COLUMNS.count(",") + 1

UNREADABLE = (struct.error, zlib.error, ValueError, TypeError, KeyError, AttributeError)
"""The errors that damaged values from SQLite can cause."""
_FACTS = struct.Struct("<dddq5?q")
_TIMES = struct.Struct("<dd")
_NO_EXIT_CODE = -1 << 62

Row = Sequence[Any]
V = TypeVar("V")
P = ParamSpec("P")


class DamagedRecord(InfrastructureError):
    """A row has a wrong checksum: a fault of the disk or of memory that SQLite has not detected."""


class EdgeRow(NamedTuple):
    """A row of the table `edges` as it is inserted; its further columns count later events.

    Attributes: see `schema.sql`, and `Edge`.
    """

    state: bytes
    call_key: bytes
    slot: float | None
    waited: float
    next_state: bytes | None
    timeout: float | None
    exit_code: int | None
    duration: float
    timed_out: bool
    blocked: bool
    truncated: bool
    quiet_s: float | None
    output: str | bytes
    call: str | bytes
    parts: bytes | None
    earliest: float | None
    latest: float | None
    deterministic: bool
    created: float
    reason: str
    digest: str | None
    active: str | None
    checksum: int | None
    cost: str | None
    proven: bool
    on_host: bool
    asked: str | None
    strain: str | None
    grade: str | None
    processor_s: float | None
    times: bytes | None


CHECKED: Final = 17
"""The number of first fields of `EdgeRow` on which an answer depends: the arguments of `checksum`."""


def pack(text: str) -> str | bytes:
    """Returns `text` in its stored form: compressed if it is long, or not encodable in UTF-8."""
    if len(text) <= COMPRESS_ABOVE:
        try:
            if len(text.encode()) <= COMPRESS_ABOVE:
                return text
        except UnicodeEncodeError:
            pass
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 1)


def unpack(stored: str | bytes) -> str:
    """Returns the text of a result of `pack`."""
    return stored if isinstance(stored, str) else zlib.decompress(stored).decode("utf-8", "surrogatepass")


UNREAD: Final = 1
"""The number of last fields of `EdgeRow` that are no part of an `Edge`: no answer needs them."""
EDGE_COLUMNS = ", ".join(f"{{0}}.{name}" for name in ("id", *EdgeRow._fields[:-UNREAD], "hits", "refusals"))
LISTED_COLUMNS = EDGE_COLUMNS.replace("{0}.output", "''").replace("{0}.parts", "NULL")
"""Like `EDGE_COLUMNS`, but without the outputs, which may be long."""
EDGE_WIDTH = EDGE_COLUMNS.count(",") + 1
_CALL_KEY, _SLOT, _DETERMINISTIC, _CALL = (
    1 + EdgeRow._fields.index(name) for name in ("call_key", "slot", "deterministic", "call")
)
_CHECKED = slice(1, 1 + CHECKED)
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def pack_parts(parts: Sequence[Part]) -> tuple[str | bytes, bytes | None]:
    """Converts a result's parts into the columns `output` and `parts`.

    `parts` is a line of JSON, which lists the media type of each part, whether it is text, and its length (characters
    of the output, or bytes), followed by the bytes of all parts that are not text.
    """
    if len(parts) == 1 and parts[0].media_type == TEXT and isinstance(parts[0].data, str):
        return pack(parts[0].data), None
    header = [[part.media_type, isinstance(part.data, str), len(part.data)] for part in parts]
    text = "".join(part.data for part in parts if isinstance(part.data, str))
    data = b"".join(part.data for part in parts if isinstance(part.data, bytes))
    return pack(text), json.dumps(header).encode() + b"\n" + data


def pack_times(times: Mapping[str, int]) -> bytes:
    """Returns the times of files, by path, in their stored form."""
    return zlib.compress(json.dumps(times).encode(), 1)


def unpack_times(stored: bytes | None) -> dict[str, int] | None:
    """Returns the times of a result of `pack_times`; None if they cannot be read."""
    try:
        return (
            None if stored is None else {str(path): int(at) for path, at in json.loads(zlib.decompress(stored)).items()}
        )
    except UNREADABLE:
        return None


def unpack_parts(output: str | bytes, parts: bytes | None) -> tuple[Part, ...]:
    """Returns the parts of a result of `pack_parts`; raises `UNREADABLE` if the columns contain something else."""
    text = unpack(output)
    if parts is None:
        return (Part(TEXT, text),)
    header, _, data = parts.partition(b"\n")
    unpacked, characters, position = [], 0, 0
    for media_type, is_text, length in json.loads(header):
        if is_text:
            unpacked.append(Part(media_type, text[characters : characters + length]))
            characters += length
        else:
            unpacked.append(Part(media_type, data[position : position + length]))
            position += length
    return tuple(unpacked)


def checksum(
    state: bytes,
    call_key: bytes,
    slot: float | None,
    waited: float,
    next_state: bytes | None,
    timeout: float | None,
    exit_code: int | None,
    duration: float,
    timed_out: int,
    blocked: int,
    truncated: int,
    quiet_s: float | None,
    output: str | bytes,
    call: str | bytes,
    parts: bytes | None,
    earliest: float | None = None,
    latest: float | None = None,
) -> int:
    """Returns the CRC-32 of the stored values on which an answer depends: SQLite has no checksums of its own.

    Columns that later versions of the file added count only if they have a value, so that earlier checksums stay valid.
    Raises `UNREADABLE` if the values have wrong types.
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
    if earliest is not None and latest is not None:
        facts += _TIMES.pack(earliest, latest)
    crc = zlib.crc32(state + call_key + (next_state or b"") + facts)
    crc = zlib.crc32(canonical, zlib.crc32(data, crc))
    return crc if parts is None else zlib.crc32(parts, crc)


def _bytes(stored: str | bytes) -> bytes:
    return stored.encode() if isinstance(stored, str) else stored


def to_mapping(text: str | None) -> dict[str, Any]:
    """Returns the JSON object of a column; an empty one if it cannot be read, because no answer depends on it."""
    if text:
        try:
            return dict(json.loads(text))
        except UNREADABLE:
            pass
    return {}


def from_mapping(values: Mapping[str, Any]) -> str | None:
    """Returns the text that `to_mapping` reads; None for an empty mapping."""
    return canonical_json(values) if values else None


def encodable(value: V) -> V:
    """Returns a value that SQLite can store: bytes of names that are no characters are escaped."""
    return cast("V", value.encode(errors="backslashreplace").decode()) if isinstance(value, str) else value


def _readable(convert: Callable[Concatenate[Row, P], V]) -> Callable[Concatenate[Row, P], V]:
    """Converts errors of damaged values into `DamagedRecord`."""

    @functools.wraps(convert)
    def converted(row: Row, /, *known: P.args, **named: P.kwargs) -> V:
        try:
            return convert(row, *known, **named)
        except UNREADABLE as error:
            raise DamagedRecord(f"a record of the graph is damaged ({error}); make a rollout to it again") from None

    return converted


@_readable
def to_state(row: Row) -> State:
    """Converts a row of `STATE_COLUMNS` into a state."""
    hash, root, parent, depth, private, created = row
    return State(hash.hex(), root.hex(), None if parent is None else parent.hex(), depth, private or None, created)


@_readable
def to_edge(row: Row, call: ToolCall | None = None) -> Edge:
    """Converts a row of `EDGE_COLUMNS` into an edge; raises DamagedRecord if its checksum is wrong.

    `call` is the one by which it was found, if it was.
    """
    try:
        known = call is not None and unpack(row[_CALL]) == call.canonical
        its = call if call is not None and known else ToolCall.from_canonical(unpack(row[_CALL]))
        answers = row[_DETERMINISTIC] and row[_SLOT] is not None
        edge = _edge(row, its, check=answers) if its.key == row[_CALL_KEY].hex() else None
    except UNREADABLE:
        edge = None
    if edge is None:
        raise DamagedRecord(
            f"the graph's record of call {row[0]} is damaged; make it again from a rollout, or tvsnap forget"
        )
    return edge


def to_answer(row: Row, call: ToolCall) -> Edge | None:
    """Converts a row of `EDGE_COLUMNS` that was found by its call; None if its checksum is wrong."""
    try:
        return _edge(row, call, check=True)
    except UNREADABLE:
        return None


def _edge(row: Row, call: ToolCall, *, check: bool) -> Edge | None:
    """Converts a row into an edge; None if `check` finds a wrong checksum. Raises errors that are `UNREADABLE`.

    Each hit calls this, so its time is part of a hit's.
    """
    (
        id, state, _, slot, waited, next_state, timeout, exit_code, duration, timed_out, blocked, truncated, quiet_s,
        output, _, parts, earliest, latest, deterministic, created, reason, digest, active, expected, cost, proven,
        on_host, requests, strain, grade, processor_s, hits, refusals,
    ) = row  # fmt: skip
    if check and expected != checksum(*row[_CHECKED]):
        return None
    result = ToolResult(
        (Part(TEXT, unpack(output)),) if parts is None else unpack_parts(output, parts),
        exit_code,
        duration,
        timed_out == 1,
        blocked == 1,
        truncated == 1,
        "hit",
        to_mapping(cost) if cost else _NOTHING,
        strain,
        processor_s,
    )
    at = state.hex()
    return Edge(
        id,
        at,
        call,
        timeout,
        result,
        at if next_state is None else next_state.hex(),
        deterministic == 1,
        slot is not None,
        reason or None,
        hits,
        created,
        proven == 1,
        waited,
        math.inf if quiet_s is None else quiet_s,
        digest,
        active,
        to_mapping(refusals) if refusals else _NOTHING,
        on_host == 1,
        tuple(requests.split("\n")) if requests else (),
        grade,
        waited if earliest is None else earliest,
        waited if latest is None else latest,
    )


def as_edge(row: Row, call: ToolCall) -> Edge:
    """Converts a row on which no answer depends, or that was just written, into an edge."""
    edge = _edge(row, call, check=False)
    assert edge is not None
    return edge


@_readable
def to_listed(row: Row) -> Edge:
    """Converts a row of `LISTED_COLUMNS` into an edge."""
    return as_edge(row, ToolCall.from_canonical(unpack(row[_CALL])))


@_readable
def to_snapshot(row: Row) -> Snapshot:
    """Converts a row of `SNAPSHOT_COLUMNS` into a snapshot."""
    state, id, backend, size, files, processes, shell, checkpoint_s, fork_s, commands = row[:10]
    created, last_used, forks, pinned, age_s = row[10:]
    captures = Captures(bool(files), bool(processes), bool(shell))
    values = (state.hex(), id, backend, size, captures, checkpoint_s, fork_s, tuple(json.loads(commands)), created)
    return Snapshot(*values, last_used, forks, bool(pinned), age_s)


def from_snapshot(snapshot: Snapshot) -> Row:
    """Converts a snapshot into a row of `SNAPSHOT_COLUMNS`."""
    (state, id, backend, size, captures, checkpoint_s, fork_s, processes, *rest) = (
        getattr(snapshot, field.name) for field in fields(snapshot)
    )
    contents = (captures.files, captures.processes, captures.shell)
    return (bytes.fromhex(state), id, backend, size, *contents, checkpoint_s, fork_s, json.dumps(processes), *rest)
