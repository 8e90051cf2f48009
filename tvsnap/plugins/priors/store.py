"""The file of a prior cache: what was asked, what was answered, and what all processes did."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tvsnap.host.database import Database, Format
from tvsnap.plugins.priors.distributions import LARGEST_JS

FORMAT = Format(
    Path(__file__).with_name("schema.sql"),
    0x74767072,  # "tvpr"
    1,
    kind="cache of priors",
    begin_anew="anew (the priors that were cached are lost)",
)
_COLUMNS = "id, probabilities, ask_s, uses, refreshes, error, answered, revision, checksum, state, vector"
_OVERHEAD = 200
"""Bytes of an entry on disk beside its vector and its probabilities, indices included."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the cache.

    Attributes:
        goal: the agent's goal.
        actions: the admissible ones, sorted.
        state: the digest of the state's hash, or of the text of its abstraction.
    """

    goal: str
    actions: tuple[str, ...]
    state: bytes

    @property
    def actions_digest(self) -> bytes:
        """The digest of the admissible actions."""
        return hashlib.sha256(json.dumps(self.actions).encode()).digest()

    @property
    def digest(self) -> bytes:
        """The digest of all of it."""
        return hashlib.sha256(json.dumps([self.goal, self.actions, self.state.hex()]).encode()).digest()


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer that is kept.

    Attributes:
        id: its number.
        probabilities: one for each action of the question, in their order.
        ask_s: seconds that the model took.
        uses: the number of times that it has answered.
        refreshes: the number of times that it was compared with a new answer.
        error: the mean Jensen-Shannon divergence of these comparisons, in nats; None without any.
        answered: when the model gave it, in seconds since the epoch.
        revision: the number of times that it was replaced.
    """

    id: int
    probabilities: tuple[float, ...]
    ask_s: float
    uses: int
    refreshes: int
    error: float | None
    answered: float
    revision: int


@dataclass(frozen=True, slots=True)
class PriorStats:
    """The contents of a prior cache, and counts of all processes that used it.

    Attributes:
        entries: answers that are kept.
        questions: different goals with their admissible actions.
        capacity: the most entries that are kept.
        bytes: the size of the file.
        lookups: questions that were put to the cache.
        exact_hits: those that were answered by the same state.
        near_hits: those that were answered by a similar state.
        coalesced: those that waited for the same question of another.
        asked: questions that the model was asked, refreshes included.
        failed: those among them in which the model raised an error; nothing is kept of these.
        refreshes: answers that were asked for anew although there was one.
        divergence: the mean Jensen-Shannon divergence between what refreshes replaced and what the model said, in nats
            (at most log 2); None without refreshes. For exact hits, it is what the model's own chance makes.
        near_divergence: the same for answers of similar states, the abstraction's error included; None without any.
        near_bound: the mean of what the error of answers of similar states was at most, by what had been measured when
            each was given (see `Errors`), 0 to 1; None without any.
        refused: the mean share of the proposals that were not admissible, 0 to 1; None if the model was not asked.
        evicted: entries that made room for others.
        damaged: entries that were found damaged and deleted.
        asked_s: seconds that the model took.
        saved_s: seconds that it would have taken for what the cache answered.
    """

    entries: int
    questions: int
    capacity: int
    bytes: int
    lookups: int
    exact_hits: int
    near_hits: int
    coalesced: int
    asked: int
    failed: int
    refreshes: int
    divergence: float | None
    near_divergence: float | None
    near_bound: float | None
    refused: float | None
    evicted: int
    damaged: int
    asked_s: float
    saved_s: float

    @property
    def hit_rate(self) -> float:
        """The share of lookups that the model was not asked for; 0 without any."""
        return (self.exact_hits + self.near_hits + self.coalesced) / self.lookups if self.lookups else 0.0

    @property
    def error_bound(self) -> float:
        """The bound of the error that similar states brought, as the mean over all lookups, 0 to 1."""
        return (self.near_bound or 0.0) * self.near_hits / self.lookups if self.lookups else 0.0


def state_digest(kind: str, text: str) -> bytes:
    """Returns the digest of a state's hash (kind `state`) or of the text of its abstraction (kind `text`)."""
    return hashlib.sha256(json.dumps([kind, text]).encode()).digest()


class Store:
    """The file. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.database = Database(path, FORMAT)

    def question(self, question: Question) -> int | None:
        """Returns the number of a goal with its actions; None if nothing is kept of it."""
        with self.database.read() as reader:
            row = reader.execute(
                "SELECT id FROM questions WHERE goal = ? AND actions = ?", (question.goal, question.actions_digest)
            ).fetchone()
        return None if row is None else int(row[0])

    def exact(self, number: int, question: Question) -> Entry | None:
        """Returns the entry of a state; None if there is none. One that is damaged is deleted."""
        with self.database.read() as reader:
            row = reader.execute(
                f"SELECT {_COLUMNS} FROM entries WHERE question = ? AND state = ?", (number, question.state)
            ).fetchone()
        return self._entry(row, len(question.actions))

    def entries(self, numbers: Sequence[int], question: Question) -> list[tuple[Entry, bytes]]:
        """Returns those of some entries that are there, with their vectors. One that is damaged is deleted."""
        marks = ", ".join("?" * len(numbers))
        with self.database.read() as reader:
            rows = reader.execute(f"SELECT {_COLUMNS} FROM entries WHERE id IN ({marks})", numbers).fetchall()
        entries = ((self._entry(row, len(question.actions)), row[-1]) for row in rows)
        return [(entry, vector) for entry, vector in entries if entry is not None]

    def vectors(self, number: int, embedder: str, after: int) -> Iterator[list[tuple[int, bytes]]]:
        """Yields the vectors of a question that were added after a number, some thousands at once."""
        while True:
            with self.database.read() as reader:
                rows = reader.execute(
                    "SELECT id, vector FROM entries WHERE question = ? AND embedder = ? AND id > ? "
                    "ORDER BY id LIMIT 4096",
                    (number, embedder, after),
                ).fetchall()
            if not rows:
                return
            yield rows
            after = rows[-1][0]

    def put(
        self,
        question: Question,
        probabilities: Sequence[float],
        ask_s: float,
        vector: bytes | None,
        embedder: str | None,
    ) -> int:
        """Keeps an answer in place of that of the same state, if there is one; returns its number."""
        packed = struct.pack(f"<{len(probabilities)}d", *probabilities)
        size = len(packed) + len(vector or b"") + _OVERHEAD
        with self.database.write() as writer:
            writer.execute(
                "INSERT INTO questions (goal, actions) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (question.goal, question.actions_digest),
            )
            number = writer.execute(
                "SELECT id FROM questions WHERE goal = ? AND actions = ?", (question.goal, question.actions_digest)
            ).fetchone()[0]
            row = writer.execute(
                "INSERT INTO entries (question, state, embedder, vector, probabilities, ask_s, uses, refreshes, "
                "answered, revision, priority, checksum) VALUES (?, ?, ?, ?, ?, ?, 0, 0, ?, 0, ?, ?) "
                "ON CONFLICT (question, state) DO UPDATE SET probabilities = excluded.probabilities, "
                "ask_s = excluded.ask_s, answered = excluded.answered, revision = revision + 1, "
                "checksum = excluded.checksum RETURNING id, vector",
                (
                    *(number, question.state, embedder, vector, packed, ask_s, time.time()),
                    _inflation(writer) + worth(0, ask_s, None, size),
                    _checksum(question.state, packed, vector),
                ),
            ).fetchone()
            if row[1] != vector:  # an entry that is replaced keeps its vector
                writer.execute(
                    "UPDATE entries SET checksum = ? WHERE id = ?", (_checksum(question.state, packed, row[1]), row[0])
                )
            return int(row[0])

    def compared(self, number: int, divergence: float) -> None:
        """Adds the divergence between an entry's answer and a new one to its mean."""
        with self.database.write() as writer:
            writer.execute(
                "UPDATE entries SET error = (coalesce(error, 0) * refreshes + ?) / (refreshes + 1), "
                "refreshes = refreshes + 1 WHERE id = ?",
                (divergence, number),
            )

    def count(self, counts: Mapping[str, float], uses: Mapping[int, int]) -> None:
        """Adds counts to those of all processes, and uses to entries, which are the later evicted for them."""
        with self.database.write() as writer:
            writer.executemany(
                "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
                list(counts.items()),
            )
            inflation = _inflation(writer)
            for number, more in uses.items():
                row = writer.execute(
                    "UPDATE entries SET uses = uses + ? WHERE id = ? RETURNING uses, ask_s, error, "
                    "length(probabilities) + coalesce(length(vector), 0)",
                    (more, number),
                ).fetchone()
                if row is not None:
                    value = worth(row[0], row[1], row[2], row[3] + _OVERHEAD)
                    writer.execute("UPDATE entries SET priority = ? WHERE id = ?", (inflation + value, number))

    def evict(self, capacity: int) -> list[bytes]:
        """Deletes the entries of least worth beyond a capacity; returns the first 8 bytes of their states' digests.

        Raises what all others are compared with to the worth of what was deleted (GreedyDual-Size-Frequency): what is
        not used any more is evicted in the end, however often it was used once.
        """
        with self.database.write() as writer:
            excess = writer.execute("SELECT count(*) FROM entries").fetchone()[0] - capacity
            if excess <= 0:
                return []
            rows = writer.execute(
                "SELECT id, priority, state FROM entries ORDER BY priority, id LIMIT ?", (excess,)
            ).fetchall()
            writer.executemany("DELETE FROM entries WHERE id = ?", [(row[0],) for row in rows])
            writer.execute(
                "INSERT INTO counters VALUES ('inflation', ?1) ON CONFLICT (name) DO UPDATE SET value = max(value, ?1)",
                (rows[-1][1],),
            )
            writer.execute("DELETE FROM questions WHERE id NOT IN (SELECT question FROM entries)")
            return [row[2][:8] for row in rows]

    def clear(self, goal: str | None) -> int:
        """Deletes all entries, or those of a goal; returns how many."""
        with self.database.write() as writer:
            removed = writer.execute(
                "DELETE FROM entries WHERE ?1 IS NULL OR question IN (SELECT id FROM questions WHERE goal = ?1)",
                (goal,),
            ).rowcount
            writer.execute("DELETE FROM questions WHERE id NOT IN (SELECT question FROM entries)")
            return removed

    def stats(self, capacity: int) -> PriorStats:
        """Returns what the file holds, and what all processes have done."""
        with self.database.read() as reader:
            entries = reader.execute("SELECT count(*) FROM entries").fetchone()[0]
            questions = reader.execute("SELECT count(*) FROM questions").fetchone()[0]
            pages = reader.execute("PRAGMA page_count").fetchone()[0] * reader.execute("PRAGMA page_size").fetchone()[0]
            counters: dict[str, float] = dict(reader.execute("SELECT name, value FROM counters").fetchall())

        def number(name: str) -> int:
            return int(counters.get(name, 0))

        def mean(total: str, of: int) -> float | None:
            return counters.get(total, 0.0) / of if of else None

        succeeded = number("asked") - number("failed")
        return PriorStats(
            entries=entries,
            questions=questions,
            capacity=capacity,
            bytes=pages,
            lookups=number("lookups"),
            exact_hits=number("exact"),
            near_hits=number("near"),
            coalesced=number("coalesced"),
            asked=number("asked"),
            failed=number("failed"),
            refreshes=number("refreshes"),
            divergence=mean("divergence", number("refreshes")),
            near_divergence=mean("near_divergence", number("near_refreshes")),
            near_bound=mean("near_bound", number("near")),
            refused=mean("refused", succeeded),
            evicted=number("evicted"),
            damaged=number("damaged"),
            asked_s=counters.get("asked_s", 0.0),
            saved_s=counters.get("saved_s", 0.0),
        )

    @contextmanager
    def closing(self) -> Iterator[None]:
        """A block after which the file is closed."""
        try:
            yield
        finally:
            self.database.close()

    def _entry(self, row: sqlite3.Row | None, actions: int) -> Entry | None:
        if row is None:
            return None
        number, packed, ask_s, uses, refreshes, error, answered, revision, checksum, state, vector = row
        if len(packed) != 8 * actions or checksum != _checksum(state, packed, vector):
            with self.database.write() as writer:
                writer.execute("DELETE FROM entries WHERE id = ? AND checksum = ?", (number, checksum))
            self.count({"damaged": 1}, {})
            return None
        return Entry(number, struct.unpack(f"<{actions}d", packed), ask_s, uses, refreshes, error, answered, revision)


def worth(uses: int, ask_s: float, error: float | None, size: int) -> float:
    """Returns what an entry is worth: seconds of the model that it saves for each byte, as far as it is right.

    Args:
        uses: the number of times that it has answered.
        ask_s: seconds that the model takes for it.
        error: its mean Jensen-Shannon divergence from new answers, in nats; None if that is not known.
        size: its bytes on disk.
    """
    return (uses + 1) * ask_s * (1.0 - (error or 0.0) / LARGEST_JS) / size


def _inflation(writer: sqlite3.Cursor) -> float:
    row = writer.execute("SELECT value FROM counters WHERE name = 'inflation'").fetchone()
    return 0.0 if row is None else float(row[0])


def _checksum(state: bytes, probabilities: bytes, vector: bytes | None) -> int:
    return zlib.crc32(probabilities, zlib.crc32(vector or b"", zlib.crc32(state)))
