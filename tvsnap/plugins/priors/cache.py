"""A cache of what a language model proposes to do in a state: the way of one lookup, from top to bottom."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from tvsnap import InfrastructureError, TvsnapError, UsageError
from tvsnap.host.home import resolve_home
from tvsnap.plugins.priors.arguments import check_whole, is_number
from tvsnap.plugins.priors.distributions import Proposals, js, smooth
from tvsnap.plugins.priors.embedding import Embedder, WordLlamaEmbedder, load_numpy, name_of, unit
from tvsnap.plugins.priors.errors import Errors
from tvsnap.plugins.priors.flights import Flights
from tvsnap.plugins.priors.neighbours import Neighbours
from tvsnap.plugins.priors.store import Entry, PriorStats, Question, Store, state_digest

if TYPE_CHECKING:
    from tvsnap.plugins.priors.embedding import Vector

Source = Literal["exact", "near", "coalesced", "asked"]
logger = logging.getLogger("tvsnap.priors")
FLUSH_S = 1.0
"""Seconds after which counts that are kept in memory are written."""
MOST_INDICES = 1024
"""Of so many questions, vectors are kept in memory."""
MOST_REMEMBERED = 100_000
"""Of so many evicted entries it is known that they were there."""
EVICT_AT_ONCE = 0.02
"""The share of the capacity that one process adds before it evicts what is beyond the capacity."""


@dataclass(frozen=True, slots=True)
class Prior:
    """What a model proposes in a state, as probabilities of the admissible actions.

    Attributes:
        probabilities: by action, in the order in which the actions were given; each is above 0, and they add up to 1.
        source: `exact`: the cache had the same state; `near`: a similar one; `coalesced`: the same question was being
            asked by another; `asked`: the model was asked.
        similarity: the cosine of this state's vector and that of the state whose answer it is; 1 but for `near`.
        uses: how often this answer was used before.
        age_s: seconds since the model gave it.
        error: the mean Jensen-Shannon divergence between it and newer answers, in nats; None where none was asked for.
    """

    probabilities: dict[str, float]
    source: Source
    similarity: float
    uses: int
    age_s: float
    error: float | None

    @property
    def is_hit(self) -> bool:
        """Whether the model was not asked."""
        return self.source != "asked"


@dataclass(frozen=True, slots=True)
class _Match:
    entry: Entry
    similarity: float
    near: bool


class PriorCache:
    """A durable cache of a model's proposals, which several threads and processes may use at once.

    A prior is looked up by the goal, the admissible actions, and the state: first the same state, by its hash or by the
    text of its abstraction, then, if it has a text, the most similar one of the same goal and actions.
    """

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        delta: float = 0.98,
        tolerance: float | None = None,
        refresh: float = 0.02,
        capacity: int = 1_000_000,
        smoothing: float = 0.05,
        model: str = "",
        embedder: Embedder | None = None,
        seed: int | None = None,
    ) -> None:
        """Opens the file, and creates it if it is missing.

        Args:
            path: the file; by default `priors.db` in tvsnap's data directory.
            delta: the least cosine of a state whose answer is taken for a similar one's, above 0; above 1 for none.
            tolerance: the error of answers of similar states that is tolerated, as the mean over all lookups, above 0
                and below 1 (see `Errors`). With it, the cache itself finds how similar a state must be, and `delta`
                does not count; None leaves it to `delta`.
            refresh: the probability with which the model is asked although there is an answer, 0 to 1. With a
                tolerance, answers of the same state are refreshed as far as that serves the measurement.
            capacity: how many answers are kept at most.
            smoothing: the probability that is distributed evenly over all admissible actions, above 0 and at most 1. It
                is applied when an answer is kept: those that are kept already stay as they are.
            model: what proposes, by name: answers of another one in the same file are none of its.
            embedder: makes vectors of texts; by default `WordLlamaEmbedder`.
            seed: of the choice of what is refreshed or asked; None for another one each time.

        Raises:
            UsageError: an argument makes no sense.
            TvsnapError: the file cannot be used; the message says why.
        """
        if not isinstance(model, str):
            raise UsageError(f"model must be a text, not {model!r}")
        if not (is_number(smoothing) and 0.0 < smoothing <= 1.0):
            raise UsageError(f"smoothing must be above 0 and at most 1, not {smoothing!r}: every action needs some")
        self._embedder: Embedder = WordLlamaEmbedder() if embedder is None else embedder
        if not callable(self._embedder):
            raise UsageError(f"an embedder must be callable with a text, which {embedder!r:.60} is not")
        self._embedder_name = name_of(self._embedder)
        self._smoothing = smoothing
        self._model = model
        self._told = ""  # the failure that was logged last
        self.delta, self.tolerance, self.refresh, self.capacity = delta, tolerance, refresh, capacity
        file = resolve_home() / "priors.db" if path is None else Path(path)
        self._store = Store(file)
        self._flights = Flights(self._store.database.path.with_name(file.name + "-asking"))
        self._random = random.Random(seed)
        self._errors = Errors()
        self._lock = threading.Lock()
        self._indices: OrderedDict[int, Neighbours] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._uses: Counter[int] = Counter()
        self._totals: Counter[str] = Counter()
        self._evicted: OrderedDict[bytes, None] = OrderedDict()
        self._flushed = time.monotonic()
        self._added = 0
        self._evict()  # what others have left

    @property
    def delta(self) -> float:
        """The least cosine of a state whose answer is taken for a similar one's; it may be changed at any time."""
        return self._delta

    @delta.setter
    def delta(self, value: float) -> None:
        if not (is_number(value) and value > 0.0):
            raise UsageError(f"delta must be above 0 (above 1 for exact states only), not {value!r}")
        self._delta = value

    @property
    def tolerance(self) -> float | None:
        """The tolerated mean error of what similar states answer, or None; it may be changed at any time."""
        return self._tolerance

    @tolerance.setter
    def tolerance(self, value: float | None) -> None:
        if value is not None and not (is_number(value) and 0.0 < value < 1.0):
            raise UsageError(f"tolerance must be above 0 and below 1, or None, not {value!r}")
        self._tolerance = value

    @property
    def refresh(self) -> float:
        """The probability with which the model is asked although there is an answer; it may be changed at any time."""
        return self._refresh

    @refresh.setter
    def refresh(self, value: float) -> None:
        if not (is_number(value) and 0.0 <= value <= 1.0):
            raise UsageError(f"refresh must be a probability, 0 to 1, not {value!r}")
        self._refresh = value

    @property
    def capacity(self) -> int:
        """How many answers are kept at most; it may be changed at any time."""
        return self._capacity

    @capacity.setter
    def capacity(self, value: int) -> None:
        check_whole(value, "capacity")
        self._capacity = value

    def prior(
        self,
        goal: str,
        actions: Iterable[str],
        ask: Callable[[], Proposals],
        *,
        state: str | None = None,
        text: str | None = None,
    ) -> Prior:
        """Returns what the model proposes, from the cache if possible.

        Of several threads and processes that put the same question at once, one asks the model. What `ask` raises is
        raised to who asked, and nothing is kept; another one that waited then asks itself.

        Args:
            goal: what the agent is to do.
            actions: the admissible ones, at least one, each once. Their order does not matter.
            ask: asks the model: returns weights by action, or actions, each as often as it was proposed.
            state: the hash of the state, as `Rollout.state` has it: then an answer is of exactly this state.
            text: an abstraction of the state in words. With both, only what has no answer by its hash is looked up by
                its text.

        Raises:
            UsageError: the question makes no sense, or the model's answer does not.
            TvsnapError: the file cannot be read. Where it cannot be written, as on a full disk, that is logged.
        """
        ordered, question = self._question(goal, actions, state, text)
        start = time.perf_counter()
        try:
            return self._prior(question, ordered, ask, text)
        finally:
            self._count(lookup_s=time.perf_counter() - start)

    def _prior(
        self, question: Question, ordered: Sequence[str], ask: Callable[[], Proposals], text: str | None
    ) -> Prior:
        vector: Vector | None = None
        match = self._exact(question)
        self._count(lookups=1)
        if match is None and text is not None:
            vector = self._vector(text)
            match = self._near(question, vector)
        self._errors.looked_up(match.similarity if match is not None and match.near else None)
        share = 0.0 if match is None else self._share(match)
        fits = share == 1.0 or (share > 0.0 and self._random.random() < share)
        if match is None or not fits or self._random.random() < self._rate(match):
            return self._ask(question, ordered, ask, match, text, vector, fits=fits)
        source: Source = "near" if match.near else "exact"
        self._used(match.entry, source)
        if match.near:
            self._count(near_bound=self._errors.bound(match.similarity))
        return _prior(match.entry, question, ordered, source, match.similarity)

    def lookup(
        self, goal: str, actions: Iterable[str], *, state: str | None = None, text: str | None = None
    ) -> Prior | None:
        """Returns what the cache has, without asking the model; None if it has nothing. Nothing is counted.

        Args:
            goal: what the agent is to do.
            actions: the admissible ones.
            state: the hash of the state.
            text: an abstraction of the state in words.

        Raises:
            UsageError: the question makes no sense.
            TvsnapError: the file cannot be used.
        """
        ordered, question = self._question(goal, actions, state, text)
        match = self._exact(question)
        if match is None and text is not None:
            match = self._near(question, self._vector(text))
        if match is None or self._share(match) < 1.0:
            return None
        return _prior(match.entry, question, ordered, "near" if match.near else "exact", match.similarity)

    def clear(self, goal: str | None = None) -> int:
        """Deletes all answers, or those of one goal; returns how many.

        Args:
            goal: whose answers of this object's model; None for all answers of all models.

        Raises:
            UsageError: the goal is no text.
            TvsnapError: the file cannot be used.
        """
        return self._store.clear(None if goal is None else self._of_model(_text("goal", goal)))

    def stats(self) -> PriorStats:
        """Returns what the cache holds, and what all processes that used it have done.

        Raises:
            TvsnapError: the file cannot be used.
        """
        with self._at_most_logged():
            self.flush()
        return self._store.stats(self._capacity)

    def counts(self) -> dict[str, float]:
        """Returns what this object has counted since it was opened, by the names that the file has.

        `lookups`, `lookup_s` (seconds that they took, the model's included), `asked`, `asked_s`, `exact`, `near`,
        `coalesced`, `refreshes`, `divergence` (the sum over them), `near_refreshes`, `near_divergence`, `near_bound`
        (the sum of bounds on errors, over `near`), `evicted`, and `wanted_again`: questions whose answers had been
        evicted. What has not happened is not there.
        """
        with self._lock:
            return dict(self._totals)

    def flush(self) -> None:
        """Writes the counts that are kept in memory for a second at most; a process that is killed loses these only.

        Raises:
            TvsnapError: the file cannot be used.
        """
        with self._lock:
            counts, uses = self._counts, self._uses
            self._counts, self._uses = Counter(), Counter()
            self._flushed = time.monotonic()
        if not (counts or uses):
            return
        try:
            self._store.count(counts, uses)
        except TvsnapError:
            with self._lock:  # for the next time
                self._counts.update(counts)
                self._uses.update(uses)
            raise

    def close(self) -> None:
        """Writes what is kept in memory, as far as there is room, and closes the file; safe to repeat."""
        with self._store.closing(), self._at_most_logged():
            if not self._store.database.closed:
                self.flush()

    def __enter__(self) -> PriorCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _of_model(self, goal: str) -> str:
        """Returns the goal by which the file has answers of this object's model."""
        return json.dumps([self._model, goal]) if self._model else goal

    def _question(
        self, goal: str, actions: Iterable[str], state: str | None, text: str | None
    ) -> tuple[tuple[str, ...], Question]:
        """Returns the actions in their order, and the question; raises `UsageError` if it makes no sense."""
        if isinstance(actions, str):
            raise UsageError(f"actions must be several texts, not one: {actions[:60]!r}")
        ordered = tuple(actions)
        for name, value in (("goal", goal), ("state", state), ("text", text), *(("action", each) for each in ordered)):
            if value is not None or name not in ("state", "text"):
                _text(name, value)
        if state is None and text is None:
            raise UsageError(
                "a question needs the state: give its hash (state=), an abstraction in words (text=), or both"
            )
        if not ordered:
            raise UsageError("a question needs at least one admissible action")
        if len(set(ordered)) < len(ordered):
            twice = next(action for action, times in Counter(ordered).items() if times > 1)
            raise UsageError(f"the action {twice!r:.60} is given twice; give each admissible action once")
        digest = state_digest("state", state) if state is not None else state_digest("text", text or "")
        return ordered, Question(self._of_model(goal), tuple(sorted(ordered)), digest)

    def _exact(self, question: Question) -> _Match | None:
        number = self._store.question(question)
        entry = None if number is None else self._store.exact(number, question)
        return None if entry is None else _Match(entry, 1.0, near=False)

    def _near(self, question: Question, vector: Vector | None) -> _Match | None:
        """Returns the most similar state of the same goal and actions; None if none could be similar enough."""
        if vector is None or (self._tolerance is None and self._delta > 1.0):
            return None
        number = self._store.question(question)
        if number is None:
            return None
        with self._lock:
            index = self._index(number, len(vector))
            while ids := index.nearest(vector):
                there = self._store.entries(ids, question)
                for id in set(ids) - {entry.id for entry, _ in there}:
                    index.remove(id)  # it was evicted
                if there:
                    break
            else:
                return None
        cosines = [float(_unpacked(packed) @ vector) for _, packed in there]
        best = max(range(len(there)), key=cosines.__getitem__)
        return _Match(there[best][0], min(1.0, cosines[best]), near=True)

    def _share(self, match: _Match) -> float:
        """Returns the probability with which an answer is similar enough to be given."""
        if not match.near:
            return 1.0
        if self._tolerance is not None:
            return self._errors.share(match.similarity, self._tolerance)
        return float(match.similarity >= self._delta)

    def _rate(self, match: _Match) -> float:
        """Returns the probability with which an answer that could be given is asked for all the same."""
        if match.near or self._tolerance is None:
            return self._refresh
        return self._refresh * self._errors.chance_wanted()

    def _index(self, number: int, dimension: int) -> Neighbours:
        """Returns the vectors of a question, with those that other processes have added."""
        index = self._indices.get(number)
        if index is None:
            index = self._indices[number] = Neighbours(dimension)
            if len(self._indices) > MOST_INDICES:
                self._indices.popitem(last=False)
        self._indices.move_to_end(number)
        for batch in self._store.vectors(number, self._embedder_name, index.latest):
            rows = [(id, packed) for id, packed in batch if len(packed) % 2 == 0]  # others are damaged
            vectors = [_unpacked(packed) for _, packed in rows]
            if any(len(each) != dimension for each in vectors):
                raise UsageError(
                    f"the embedder {self._embedder_name} returned {dimension} numbers, and more or fewer before: "
                    "give it another name when its model changes"
                )
            index.add([id for id, _ in rows], vectors)
        return index

    def _ask(
        self,
        question: Question,
        ordered: Sequence[str],
        ask: Callable[[], Proposals],
        match: _Match | None,
        text: str | None,
        vector: Vector | None,
        *,
        fits: bool,
    ) -> Prior:
        """Asks the model, and compares its answer with what was found, which would have been given if it fits."""
        with self._flights.alone(question.digest):
            now = self._exact(question)
            if now is not None and not _same(match, now):  # another one has asked meanwhile
                self._used(now.entry, "coalesced")
                return _prior(now.entry, question, ordered, "coalesced", 1.0)
            start = time.perf_counter()
            try:
                answer = smooth(ask(), question.actions, self._smoothing)
            except BaseException:
                self._count(asked=1, failed=1)
                raise
            took = time.perf_counter() - start
            if vector is None and text is not None and match is None:
                vector = self._vector(text)
            packed = None if vector is None else vector.astype("<f2").tobytes()
            with self._at_most_logged():
                self._store.put(
                    question, answer.probabilities, took, packed, None if packed is None else self._embedder_name
                )
        counts = {"asked": 1, "asked_s": took, "refused": answer.refused}
        with self._lock:
            if self._evicted.pop(question.state[:8], 0) is None:
                counts["wanted_again"] = 1
        if match is not None:
            divergence = js(match.entry.probabilities, answer.probabilities)
            self._errors.compared(match.similarity if match.near else None, divergence)
            if fits:
                with self._at_most_logged():
                    self._store.compared(match.entry.id, divergence)
                counts |= {"refreshes": 1, "divergence": divergence}
                if match.near:
                    counts |= {"near_refreshes": 1, "near_divergence": divergence}
        self._count(**counts)
        self._added += 1
        if self._added > self._capacity * EVICT_AT_ONCE:
            with self._at_most_logged():
                self._evict()
        return Prior(_named(answer.probabilities, question, ordered), "asked", 1.0, 0, 0.0, None)

    def _vector(self, text: str) -> Vector | None:
        return unit(self._embedder(text), self._embedder_name)

    def _evict(self) -> None:
        self.flush()  # uses count
        self._added = 0
        evicted = self._store.evict(self._capacity)
        if evicted:
            self._count(evicted=len(evicted))
        with self._lock:
            self._evicted.update(dict.fromkeys(evicted))
            while len(self._evicted) > MOST_REMEMBERED:
                self._evicted.popitem(last=False)

    def _used(self, entry: Entry, source: Source) -> None:
        with self._lock:
            self._uses[entry.id] += 1
        self._count(**{source: 1, "saved_s": entry.ask_s})

    def _count(self, **counts: float) -> None:
        with self._lock:
            for name, value in counts.items():
                self._counts[name] += value  # type: ignore[assignment]
                self._totals[name] += value  # type: ignore[assignment]
            late = time.monotonic() - self._flushed > FLUSH_S
        if late:
            with self._at_most_logged():
                self.flush()

    @contextlib.contextmanager
    def _at_most_logged(self) -> Iterator[None]:
        """A block that writes; where it fails, as on a full disk, what the model said is given all the same."""
        try:
            yield
        except InfrastructureError as error:
            if str(error) != self._told:  # once for as long as it stays the same
                logger.warning("something could not be kept: %s", error)
                self._told = str(error)


def _unpacked(packed: bytes) -> Vector:
    numpy = load_numpy()
    vector: Vector = numpy.frombuffer(packed, dtype="<f2").astype(numpy.float32)
    return vector


def _text(name: str, value: object) -> str:
    """Returns a text; raises `UsageError`, which names it, if it is none."""
    if not isinstance(value, str):
        raise UsageError(f"the {name} must be a text, not {value!r:.60}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the {name} {value[:60]!r} has a surrogate by itself, which no text can have") from None
    return value


def _same(before: _Match | None, now: _Match) -> bool:
    """Returns whether an entry is the one that was found before, with the same answer."""
    return before is not None and (before.entry.id, before.entry.revision) == (now.entry.id, now.entry.revision)


def _named(probabilities: Sequence[float], question: Question, ordered: Sequence[str]) -> dict[str, float]:
    by_name = dict(zip(question.actions, probabilities, strict=True))
    return {action: by_name[action] for action in ordered}


def _prior(entry: Entry, question: Question, ordered: Sequence[str], source: Source, similarity: float) -> Prior:
    return Prior(
        probabilities=_named(entry.probabilities, question, ordered),
        source=source,
        similarity=similarity,
        uses=entry.uses,
        age_s=max(0.0, time.time() - entry.answered),
        error=entry.error,
    )
