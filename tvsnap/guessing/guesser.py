"""Executes, while the model thinks, the calls that it is likely to make next, each in a fork.

A guess is a rollout of its own, which begins where the other stands and makes one call: the graph then has the answer,
or the other rollout waits for it, as it would for any sibling. So a guess changes how long a call takes, never what it
returns; one that was wrong is dropped with its fork.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from tvsnap import Cache, CallCancelled, Image, Rollout, ToolCall, ToolResult, TvsnapError, UsageError
from tvsnap.guessing.next_calls import Guess as NextCall
from tvsnap.guessing.next_calls import NextCalls
from tvsnap.host.load import running

logger = logging.getLogger("tvsnap.guessing")
LABEL = "guess"
"""The label of rollouts that guess."""
WORTH = 0.05
"""Seconds that a guess must be expected to save: about what its fork costs on a machine that is not idle."""
DEFAULT_TIMEOUT = 60.0
_MOST_SKIPPED = 64
"""A call whose guesses cannot be used is guessed again after it was passed over so often at most."""
_CALLS = 10_000
"""Of so many calls it is remembered that their guesses could not be used."""
_ABOUT_TO = 0.05  # seconds after which a call that was about to be made is cancelled again


@dataclass(slots=True)
class GuessStats:
    """What guessing came to.

    Attributes:
        calls: how many calls the rollouts made.
        made: how many guesses were begun.
        right: how many of them were the call that was made next.
        used: how many of the right ones answered that call. For the others it was executed again, mostly as the state
            that they led to was not kept; such a call is then guessed less and less often.
        hidden_s: seconds that used guesses took and that nobody waited for.
        processor_s: seconds of processor time that all guesses used in their sandboxes, where that is known.
        failed: how many came to an error. Guesses that were ended, as another call was made, are not counted.
    """

    calls: int = 0
    made: int = 0
    right: int = 0
    used: int = 0
    hidden_s: float = 0.0
    processor_s: float = 0.0
    failed: int = 0


class Guesser:
    """Makes rollouts of a cache whose likely next calls are executed while the model thinks. Thread-safe."""

    def __init__(
        self,
        cache: Cache,
        *,
        guesses: int = 1,
        worth: float = WORTH,
        at_once: int | None = None,
        even_if_busy: bool = False,
        next_calls: NextCalls | None = None,
    ) -> None:
        """
        Args:
            cache: where the rollouts are made. It must record (`use_cache=True`), and be open in this process: a client
                of a server knows neither how busy that is, nor which tools act outside of sandboxes.
            guesses: the most that is guessed of one call.
            worth: seconds that a guess must be expected to save, its chance times the time that the call takes.
            at_once: the most guesses that are executed at a time; by default one for each processor.
            even_if_busy: guess also while more processes want to run than this machine has processors.
            next_calls: what is known of calls that follow each other; by default what the cache's graph has recorded
                of a rollout's task, and what the rollouts of this guesser call.

        Raises:
            UsageError: a number makes no sense, or nothing is recorded.
            TvsnapError: the cache is closed, or its graph cannot be read.
        """
        processors = len(os.sched_getaffinity(0))
        at_once = processors if at_once is None else at_once
        for name, value in {"guesses": guesses, "at_once": at_once}.items():
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} is {value!r}: it must be a whole number of at least 1")
        if not worth >= 0:
            raise UsageError(f"worth is {worth!r}: it must be a number of seconds, 0 or more")
        if not isinstance(cache, Cache):
            raise UsageError(f"guesses are made for rollouts of a tvsnap.Cache, not of a {type(cache).__name__}")
        if not cache.use_cache:
            raise UsageError("this cache records nothing (use_cache=False), so no answer could be given to a guess")
        cache.graph.counters()  # a cache that was closed says so
        self._cache = cache
        self._guesses = guesses
        self._worth = worth
        self._processors = None if even_if_busy else processors
        if next_calls is not None and not callable(getattr(next_calls, "likely", None)):
            raise UsageError(
                f"next_calls must have a method likely, as tvsnap.guessing.NextCalls has, not {next_calls!r}"
            )
        self._learns = next_calls is None
        self._next_calls = next_calls or NextCalls()
        self._tasks: set[str] = set()
        self._stats = GuessStats()
        self._under_way: list[_Guess] = []
        self._skipping: OrderedDict[str, tuple[int, int]] = OrderedDict()  # by call: how often, and how often still
        self._closed = False
        self._lock = threading.Lock()
        self._workers = ThreadPoolExecutor(at_once, thread_name_prefix="tvsnap-guess")
        self._enders = ThreadPoolExecutor(1, thread_name_prefix="tvsnap-guess-end")

    @property
    def stats(self) -> GuessStats:
        """What guessing has come to so far."""
        with self._lock:
            return replace(self._stats)

    def rollout(self, image: str | Image, task: str = "", **options: Any) -> GuessedRollout:
        """Begins a rollout, as `Cache.rollout` does, for whose calls guesses are made.

        None are made where its sandboxes may reach a network: a wrong guess would act there.

        Args:
            image, task: as in `Cache.rollout`.
            options: the other arguments of that.

        Raises:
            The errors of `Cache.rollout`.
        """
        found = self._cache.images.get(image) if isinstance(image, str) else image
        rollout = self._cache.rollout(found, task, **options)
        network = options.get("network")
        offline = str(found.network) == "none" if network is None else network == "none"
        if offline and self._learns:
            self._learn_past(task)
        return GuessedRollout(self, rollout, task, offline)

    def close(self) -> None:
        """Ends all guesses; rollouts go on without. Safe to repeat."""
        self._workers.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            under_way = list(self._under_way)
        for guess in under_way:
            if guess.drop():
                guess.end()
        self._workers.shutdown()
        self._enders.shutdown()

    def __enter__(self) -> Guesser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- for its rollouts -------------------------------------------------------------------------------------------

    def _learn_past(self, task: str) -> None:
        with self._lock:
            if task in self._tasks:
                return
            self._tasks.add(task)
        self._next_calls.learn_past(self._cache.graph, task)

    def _learn(self, task: str, before: list[ToolCall], call: ToolCall, result: ToolResult) -> None:
        if self._learns:
            self._next_calls.learn(task, before, call, result.duration)

    def _begin(self, rollout: Rollout, task: str, before: list[ToolCall], timeout: float) -> dict[str, _Guess]:
        """Begins guesses at where a rollout stands; returns them by call."""
        begun = {}
        state = rollout.state
        answered = [edge.call for edge in self._cache.graph.out_edges(state) if edge.shared and edge.deterministic]
        for guess in self._likely(task, before, answered):
            tool = rollout.tools.get(guess.call.name)
            if tool is None or tool.on_host or not tool.cacheable or tool.stochastic:
                continue
            if guess.chance * guess.seconds >= self._worth and not self._skip(guess.call):
                one = _Guess(guess.call)
                try:
                    one.done = self._workers.submit(self._execute, one, state, task, timeout)
                except RuntimeError:  # closed
                    break
                begun[guess.call.canonical] = one
                with self._lock:
                    self._under_way.append(one)
                    closed = self._closed
                one.done.add_done_callback(self._ended)
                if closed and one.drop():
                    one.end()
        return begun

    def _likely(self, task: str, before: list[ToolCall], answered: list[ToolCall]) -> list[NextCall]:
        """Returns the calls that are likely next; none where a predictor of somebody's own fails, which is logged."""
        try:
            return list(self._next_calls.likely(task, before, self._guesses, answered))
        except Exception:
            logger.exception("no guess is made: what is likely next could not be told")
            return []

    def _execute(self, guess: _Guess, state: str, task: str, timeout: float) -> None:
        if self._processors is not None and running() > self._processors:
            return
        try:
            with self._cache.resume(state, task, LABEL) as rollout:
                if not guess.begin(rollout):
                    return
                with self._lock:
                    self._stats.made += 1
                try:
                    result = rollout.call(guess.call.name, guess.call.arguments, timeout)
                except CallCancelled:
                    if guess.dropped:
                        return  # the rollout has done what it was for: it did not fail
                    raise
            if result.source == "executed":
                with self._lock:
                    self._stats.processor_s += result.processor_s or 0.0
        except TvsnapError:  # whoever makes the call is told
            with self._lock:
                self._stats.failed += 1

    def _skip(self, call: ToolCall) -> bool:
        """Returns whether a call is passed over, as guesses of it could not be used."""
        with self._lock:
            often, left = self._skipping.get(call.canonical, (0, 0))
            if left:
                self._skipping[call.canonical] = often, left - 1
            return left > 0

    def _ended(self, done: Future[None]) -> None:
        with self._lock:
            self._under_way = [one for one in self._under_way if one.done is not done]

    def _drop(self, guesses: Mapping[str, _Guess]) -> None:
        for guess in guesses.values():
            if guess.drop():
                self._enders.submit(guess.end)

    def _count(self, right: _Guess | None, result: ToolResult, waited: float) -> None:
        with self._lock:
            self._stats.calls += 1
            if right is not None and right.began:
                self._stats.right += 1
                often, _ = self._skipping.pop(right.call.canonical, (0, 0))
                if result.source != "executed":
                    self._stats.used += 1
                    self._stats.hidden_s += max(0.0, result.duration - waited)
                    return
                often = min(_MOST_SKIPPED, max(1, 2 * often))
                self._skipping[right.call.canonical] = often, often
                if len(self._skipping) > _CALLS:
                    self._skipping.popitem(last=False)


@dataclass(slots=True)
class _Guess:
    """One guess.

    Attributes:
        call: which call is guessed.
        rollout: makes it; None before it began.
        done: when it has ended.
        dropped: nobody waits for it any more.
    """

    call: ToolCall
    rollout: Rollout | None = None
    done: Future[None] = field(default_factory=Future)
    dropped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def began(self) -> bool:
        return self.rollout is not None

    def begin(self, rollout: Rollout) -> bool:
        """Returns whether it is still wanted."""
        with self._lock:
            if not self.dropped:
                self.rollout = rollout
            return not self.dropped

    def drop(self) -> bool:
        """Keeps it from being begun; returns whether it was begun and is to be ended."""
        self.done.cancel()
        with self._lock:
            self.dropped = True
            return self.began and not self.done.done()

    def end(self) -> None:
        """Ends its call, also one that is only about to be made."""
        while self.rollout is not None and not self.done.done():
            self.rollout.cancel()
            wait([self.done], timeout=_ABOUT_TO)


class GuessedRollout:
    """A rollout, with all that it has, whose next call is guessed in between. Used by one thread at a time."""

    def __init__(self, guesser: Guesser, rollout: Rollout, task: str, guesses: bool) -> None:
        """`guesses` is False where none may be made."""
        self._guesser = guesser
        self._rollout = rollout
        self._task = task
        self._may_guess = guesses
        self._before: list[ToolCall] = []
        self._begun: dict[str, _Guess] = {}

    def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = DEFAULT_TIMEOUT, **options: Any
    ) -> ToolResult:
        """Makes a call, as `Rollout.call` does; then the next ones are guessed.

        Args:
            name, arguments, timeout: as in `Rollout.call`.
            options: the other arguments of that.

        Raises:
            The errors of `Rollout.call`.
        """
        call = ToolCall(name, arguments)
        begun, self._begun = self._begun, {}
        right = begun.pop(call.canonical, None)
        self._guesser._drop(begun)
        if right is not None and not right.began:
            right.drop()
        start = time.monotonic()
        result = self._rollout.call(name, arguments, timeout, **options)
        self._guesser._count(right, result, time.monotonic() - start)
        self._guesser._learn(self._task, self._before, call, result)
        self._before.append(call)
        if self._may_guess and self._rollout.private is None and timeout is not None:
            self._begun = self._guesser._begin(self._rollout, self._task, self._before, timeout)
        return result

    def close(self, outcome: str | None = None) -> None:
        """Ends it, as `Rollout.close` does, and what was guessed of its next call."""
        self._stop_guessing()
        self._rollout.close(outcome)

    def _stop_guessing(self) -> None:
        begun, self._begun = self._begun, {}
        self._guesser._drop(begun)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rollout, name)

    def __enter__(self) -> GuessedRollout:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_guessing()
        self._rollout.__exit__(kind, error, trace)
