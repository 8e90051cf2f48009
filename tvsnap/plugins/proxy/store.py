"""The file with the answers that are kept, within a number of bytes."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
import threading
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvsnap.host.database import Database, Format
from tvsnap.model.errors import InfrastructureError, TvsnapError

FORMAT = Format(
    Path(__file__).with_name("schema.sql"),
    0x74767078,  # "tvpx"
    1,
    kind="cache of a model's answers",
    begin_anew="anew (the answers that were cached are lost)",
)
_OVERHEAD = 200
"""Bytes of an answer on disk beside its body and the lengths of its pieces."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of status 200.

    Attributes:
        content_type: the media type.
        pieces: the body, in the pieces in which it came.
        ask_s: seconds that the model's server took.
        created: when it answered, in seconds since the epoch.
    """

    content_type: str
    pieces: tuple[bytes, ...]
    ask_s: float
    created: float


@dataclass(frozen=True, slots=True)
class ProxyStats:
    """The contents of the file, and counts of all processes that used it.

    Attributes:
        answers: the number of answers.
        bytes: that they take.
        max_bytes: that they may take.
        hits: requests that were answered without asking, those included that waited for the same of another.
        misses: requests with one answer for which the model's server was asked.
        bypassed: requests that need not have one answer, or that the client wanted to be asked.
        failed: misses that were answered with an error, or broke off; nothing is kept of these.
        evicted: answers that made room for others.
        damaged: answers that were found damaged and deleted.
        asked_s: seconds that the model's server took for misses.
        saved_s: seconds that it took for what hits were answered with.
    """

    answers: int
    bytes: int
    max_bytes: int
    hits: int
    misses: int
    bypassed: int
    failed: int
    evicted: int
    damaged: int
    asked_s: float
    saved_s: float


class AnswerStore:
    """The file. Thread-safe, and several processes may use it at once."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        """Opens the file, and creates it if it is missing.

        Args:
            path: the file.
            max_bytes: bytes of all answers, at most.

        Raises:
            TvsnapError: it cannot be used; the message says why.
        """
        self._database = Database(path, FORMAT)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def get(self, key: bytes) -> Answer | None:
        """Returns the answer to a request; None if there is none. One that is damaged is deleted."""
        with self._database.read() as reader:
            row = reader.execute(
                "SELECT id, content_type, body, lengths, ask_s, created, checksum FROM answers WHERE key = ?", (key,)
            ).fetchone()
        if row is None:
            return None
        number, content_type, packed, lengths, ask_s, created, checksum = row
        pieces = _pieces(key, packed, lengths, checksum)
        if pieces is None:
            self._delete(number)
            self.count(damaged=1)
            return None
        return Answer(content_type, pieces, ask_s, created)

    def used(self, key: bytes, answer: Answer) -> None:
        """Takes note that an answer was given, so that it is evicted later; on a full disk, nothing is noted."""
        with contextlib.suppress(InfrastructureError), self._database.write() as writer:
            writer.execute(
                "UPDATE answers SET uses = uses + 1, priority = ?2 + (uses + 2) * ask_s / size WHERE key = ?1",
                (key, _counter(writer, "inflation")),
            )
        self.count(hits=1, saved_s=answer.ask_s)

    def put(self, key: bytes, model: str, answer: Answer) -> None:
        """Keeps an answer in place of that to the same request, if there is one, and evicts others for it."""
        lengths = struct.pack(f"<{len(answer.pieces)}I", *map(len, answer.pieces))
        body = zlib.compress(b"".join(answer.pieces), 3)
        size = len(body) + len(lengths) + _OVERHEAD
        if size > self._max_bytes:
            return
        with self._database.write() as writer:
            self._forget(writer, "key = ?", (key,))
            priority = _counter(writer, "inflation") + answer.ask_s / size
            writer.execute(
                "INSERT INTO answers (key, model, content_type, body, lengths, size, ask_s, uses, created, priority, "
                "checksum) VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?)",
                (
                    *(key, model, answer.content_type, body, lengths, size, answer.ask_s, answer.created, priority),
                    _checksum(key, body, lengths),
                ),
            )
            _add(writer, "bytes", size)
            self._evict(writer, spared=key)

    def clear(self) -> int:
        """Deletes all answers; returns how many."""
        with self._database.write() as writer:
            count = int(writer.execute("SELECT count(*) FROM answers").fetchone()[0])
            self._forget(writer, "1", ())
        return count

    def count(self, **counts: float) -> None:
        """Adds to the counts of all processes; `flush` writes them."""
        with self._lock:
            for name, value in counts.items():
                self._counts[name] += value  # type: ignore[assignment]

    def flush(self) -> None:
        """Writes the counts that are kept in memory."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        if not counts:
            return
        try:
            with self._database.write() as writer:
                for name, value in counts.items():
                    _add(writer, name, value)
        except TvsnapError:
            self.count(**counts)
            raise

    def stats(self) -> ProxyStats:
        """Returns what the file holds, and what all processes have done."""
        with contextlib.suppress(InfrastructureError):  # a full disk
            self.flush()
        with self._database.read() as reader:
            answers = int(reader.execute("SELECT count(*) FROM answers").fetchone()[0])
            counters: dict[str, float] = dict(reader.execute("SELECT name, value FROM counters").fetchall())
        whole = ("bytes", "hits", "misses", "bypassed", "failed", "evicted", "damaged")
        return ProxyStats(
            answers=answers,
            max_bytes=self._max_bytes,
            asked_s=counters.get("asked_s", 0.0),
            saved_s=counters.get("saved_s", 0.0),
            **{name: int(counters.get(name, 0)) for name in whole},
        )

    def close(self) -> None:
        """Writes what is kept in memory, and closes the file; safe to repeat."""
        if not self._database.closed:
            try:
                self.flush()
            finally:
                self._database.close()

    def _delete(self, number: int) -> None:
        with self._database.write() as writer:
            self._forget(writer, "id = ?", (number,))

    def _forget(self, writer: sqlite3.Cursor, which: str, parameters: Sequence[object]) -> None:
        row = writer.execute(f"SELECT total(size) FROM answers WHERE {which}", parameters).fetchone()
        writer.execute(f"DELETE FROM answers WHERE {which}", parameters)
        _add(writer, "bytes", -row[0])

    def _evict(self, writer: sqlite3.Cursor, spared: bytes) -> None:
        """Deletes what saves least time for each byte, as `tvsnap.priors` does, until the rest has room."""
        excess = _counter(writer, "bytes") - self._max_bytes
        if excess <= 0:
            return
        rows = writer.execute("SELECT id, size, priority FROM answers WHERE key <> ? ORDER BY priority, id", (spared,))
        chosen: list[tuple[int, int, float]] = []
        for row in rows:
            if excess <= 0:
                break
            chosen.append(row)
            excess -= row[1]
        writer.executemany("DELETE FROM answers WHERE id = ?", [(number,) for number, _, _ in chosen])
        _add(writer, "bytes", -sum(size for _, size, _ in chosen))
        _add(writer, "evicted", len(chosen))
        if chosen:
            _add(writer, "inflation", max(0.0, chosen[-1][2] - _counter(writer, "inflation")))


def _checksum(key: bytes, packed: bytes, lengths: bytes) -> int:
    return zlib.crc32(lengths, zlib.crc32(packed, zlib.crc32(key)))


def _pieces(key: bytes, packed: bytes, lengths: bytes, checksum: int) -> tuple[bytes, ...] | None:
    """Returns the pieces of the body that was kept for a key; None if they are not what was written."""
    if checksum != _checksum(key, packed, lengths):
        return None
    body, begin, pieces = zlib.decompress(packed), 0, []
    for length in struct.unpack(f"<{len(lengths) // 4}I", lengths):
        pieces.append(body[begin : begin + length])
        begin += length
    return tuple(pieces)


def _counter(cursor: sqlite3.Cursor, name: str) -> float:
    row = cursor.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
    return 0.0 if row is None else float(row[0])


def _add(writer: sqlite3.Cursor, name: str, value: float) -> None:
    writer.execute(
        "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
        (name, value),
    )
