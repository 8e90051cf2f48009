"""A cache of what a language model proposes to do in a state: the way of one lookup, from top to bottom."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from tvsnap import UsageError
from tvsnap.host.home import resolve_home
from tvsnap.plugins.priors.arguments import check_whole, is_number
from tvsnap.plugins.priors.distributions import Proposals, Smoothed, js, smooth
from tvsnap.plugins.priors.embedding import Embedder, WordLlamaEmbedder, name_of, unit
from tvsnap.plugins.priors.errors import Errors
from tvsnap.plugins.priors.flights import Flights
from tvsnap.plugins.priors.prior import Match, Prior, by_action, prior_of
from tvsnap.plugins.priors.questions import goal_of, question_of
from tvsnap.plugins.priors.similar import SimilarStates, packed
from tvsnap.plugins.priors.store import PriorStats, Question, Store
from tvsnap.plugins.priors.tallies import Tallies

if TYPE_CHECKING:
    from tvsnap.plugins.priors.embedding import Vector

EVICT_AT_ONCE = 0.02
"""The share of the capacity that one process adds before it evicts what is beyond the capacity."""


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
            capacity: the most answers that are kept.
            smoothing: the probability that is distributed evenly over all admissible actions, above 0 and at most 1. It
                is applied when an answer is kept: those that are kept already stay as they are.
            model: the model's name: answers of another one in the same file are none of its.
            embedder: makes vectors of texts; by default `WordLlamaEmbedder`.
            seed: the seed of the choice between an answer and a question; None for another one each time.

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
        self.delta, self.tolerance, self.refresh, self.capacity = delta, tolerance, refresh, capacity
        file = resolve_home() / "priors.db" if path is None else Path(path)
        self._store = Store(file)
        self._flights = Flights(self._store.database.path.with_name(file.name + "-asking"))
        self._random = random.Random(seed)
        self._errors = Errors()
        self._similar = SimilarStates(self._store, self._embedder_name)
        self._tallies = Tallies(self._store)
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
        """The most answers that are kept; it may be changed at any time."""
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
            goal: the agent's goal.
            actions: the admissible ones, at least one, each once. Their order does not matter.
            ask: asks the model: returns weights by action, or actions, each as often as it was proposed.
            state: the hash of the state, as `Rollout.state` has it: then an answer is of exactly this state.
            text: an abstraction of the state in words. With both, only what has no answer by its hash is looked up by
                its text.

        Raises:
            UsageError: the question makes no sense, or the model's answer does not.
            TvsnapError: the file cannot be read. If it cannot be written, as on a full disk, that is logged.
        """
        ordered, question = question_of(self._model, goal, actions, state, text)
        start = time.perf_counter()
        try:
            return self._prior(question, ordered, ask, text)
        finally:
            self._tallies.add(lookup_s=time.perf_counter() - start)

    def _prior(
        self, question: Question, ordered: Sequence[str], ask: Callable[[], Proposals], text: str | None
    ) -> Prior:
        vector: Vector | None = None
        match = self._exact(question)
        self._tallies.add(lookups=1)
        if match is None and text is not None:
            vector = self._vector(text)
            match = self._near(question, vector)
        self._errors.looked_up(match.similarity if match is not None and match.near else None)
        share = 0.0 if match is None else self._share(match)
        fits = share == 1.0 or (share > 0.0 and self._random.random() < share)
        if match is None or not fits or self._random.random() < self._rate(match):
            return self._ask(question, ordered, ask, match, text, vector, fits=fits)
        self._tallies.add_use(match.entry, match.source)
        if match.near:
            self._tallies.add(near_bound=self._errors.bound(match.similarity))
        return prior_of(match.entry, question, ordered, match.source, match.similarity)

    def lookup(
        self, goal: str, actions: Iterable[str], *, state: str | None = None, text: str | None = None
    ) -> Prior | None:
        """Returns what the cache has, without asking the model; None if it has nothing. Nothing is counted.

        Args:
            goal: the agent's goal.
            actions: the admissible ones.
            state: the hash of the state.
            text: an abstraction of the state in words.

        Raises:
            UsageError: the question makes no sense.
            TvsnapError: the file cannot be used.
        """
        ordered, question = question_of(self._model, goal, actions, state, text)
        match = self._exact(question)
        if match is None and text is not None:
            match = self._near(question, self._vector(text))
        if match is None or self._share(match) < 1.0:
            return None
        return prior_of(match.entry, question, ordered, match.source, match.similarity)

    def clear(self, goal: str | None = None) -> int:
        """Deletes all answers, or those of one goal; returns how many.

        Args:
            goal: whose answers of this object's model; None for all answers of all models.

        Raises:
            UsageError: the goal is no text.
            TvsnapError: the file cannot be used.
        """
        return self._store.clear(None if goal is None else goal_of(self._model, goal))

    def stats(self) -> PriorStats:
        """Returns what the cache holds, and what all processes that used it have done.

        Raises:
            TvsnapError: the file cannot be used.
        """
        with self._tallies.at_most_logged():
            self.flush()
        return self._store.stats(self._capacity)

    def counts(self) -> dict[str, float]:
        """Returns what this object has counted since it was opened, by the names that the file has.

        `lookups`, `lookup_s` (seconds that they took, the model's included), `asked`, `asked_s`, `exact`, `near`,
        `coalesced`, `refreshes`, `divergence` (the sum over them), `near_refreshes`, `near_divergence`, `near_bound`
        (the sum of bounds on errors, over `near`), `evicted`, and `wanted_again`: questions whose answers had been
        evicted. What has not happened is not there.
        """
        return self._tallies.totals()

    def flush(self) -> None:
        """Writes the counts that are kept in memory for a second at most; a process that is killed loses these only.

        Raises:
            TvsnapError: the file cannot be used.
        """
        self._tallies.flush()

    def close(self) -> None:
        """Writes what is kept in memory, as far as there is room, and closes the file; safe to repeat."""
        with self._store.closing(), self._tallies.at_most_logged():
            if not self._store.database.closed:
                self.flush()

    def __enter__(self) -> PriorCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exact(self, question: Question) -> Match | None:
        number = self._store.question(question)
        entry = None if number is None else self._store.exact(number, question)
        return None if entry is None else Match(entry, 1.0, near=False)

    def _near(self, question: Question, vector: Vector | None) -> Match | None:
        """Returns the most similar state of the same goal and actions; None if none could be similar enough."""
        if vector is None or (self._tolerance is None and self._delta > 1.0):
            return None
        return self._similar.nearest(question, vector)

    def _share(self, match: Match) -> float:
        """Returns the probability with which an answer is similar enough to be given."""
        if not match.near:
            return 1.0
        if self._tolerance is not None:
            return self._errors.share(match.similarity, self._tolerance)
        return float(match.similarity >= self._delta)

    def _rate(self, match: Match) -> float:
        """Returns the probability with which an answer that could be given is asked for all the same."""
        if match.near or self._tolerance is None:
            return self._refresh
        return self._refresh * self._errors.chance_wanted()

    def _ask(
        self,
        question: Question,
        ordered: Sequence[str],
        ask: Callable[[], Proposals],
        match: Match | None,
        text: str | None,
        vector: Vector | None,
        *,
        fits: bool,
    ) -> Prior:
        """Asks the model, and compares its answer with what was found, which would have been given if it fits."""
        with self._flights.alone(question.digest):
            now = self._exact(question)
            if now is not None and not now.is_as_before(match):  # another one has asked meanwhile
                self._tallies.add_use(now.entry, "coalesced")
                return prior_of(now.entry, question, ordered, "coalesced", 1.0)
            start = time.perf_counter()
            try:
                answer = smooth(ask(), question.actions, self._smoothing)
            except BaseException:
                self._tallies.add(asked=1, failed=1)
                raise
            took = time.perf_counter() - start
            if vector is None and text is not None and match is None:
                vector = self._vector(text)
            self._put(question, answer, took, vector)
        counts = {"asked": 1, "asked_s": took, "refused": answer.refused}
        if self._tallies.forget_evicted(question.state[:8]):
            counts["wanted_again"] = 1
        if match is not None:
            counts |= self._compare(match, answer, fits=fits)
        self._tallies.add(**counts)
        self._added += 1
        if self._added > self._capacity * EVICT_AT_ONCE:
            with self._tallies.at_most_logged():
                self._evict()
        return Prior(by_action(answer.probabilities, question, ordered), "asked", 1.0, 0, 0.0, None)

    def _put(self, question: Question, answer: Smoothed, seconds: float, vector: Vector | None) -> None:
        """Keeps an answer that the model took some seconds for; if it cannot be written, it is given all the same."""
        data, embedder = (None, None) if vector is None else (packed(vector), self._embedder_name)
        with self._tallies.at_most_logged():
            self._store.put(question, answer.probabilities, seconds, data, embedder)

    def _compare(self, match: Match, answer: Smoothed, *, fits: bool) -> dict[str, float]:
        """Compares an entry's answer with the model's; returns the counts of a refresh if the entry's fitted."""
        divergence = js(match.entry.probabilities, answer.probabilities)
        self._errors.compared(match.similarity if match.near else None, divergence)
        if not fits:
            return {}
        with self._tallies.at_most_logged():
            self._store.compared(match.entry.id, divergence)
        counts = {"refreshes": 1, "divergence": divergence}
        return counts | ({"near_refreshes": 1, "near_divergence": divergence} if match.near else {})

    def _vector(self, text: str) -> Vector | None:
        return unit(self._embedder(text), self._embedder_name)

    def _evict(self) -> None:
        self.flush()  # uses count
        self._added = 0
        evicted = self._store.evict(self._capacity)
        if evicted:
            self._tallies.add(evicted=len(evicted))
        self._tallies.add_evicted(evicted)
