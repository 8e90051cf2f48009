"""The replay engine: runs recorded rollouts through a cache, many side by side, and reports the results.

The calls of one rollout follow one another; rollouts run in threads. If tvsnap itself fails in a rollout (not the
rollout's commands), that rollout ends and is reported; the others go on.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from tvsnap.engine.auditing.checking import NOTHING_CHECKED, CheckReport
from tvsnap.model.arguments import check_seconds, check_text, check_whole
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import Forbidden, TvsnapError
from tvsnap.model.operations.caches import CacheMethods
from tvsnap.model.stats import Stats
from tvsnap.upkeep.rollout_files import PlannedRollout

if TYPE_CHECKING:
    from tvsnap.engine.auditing.audit import Auditor

DEFAULT_TIMEOUT = 30.0  # seconds that a call gets if it has no timeout of its own

_POLL = 0.1
_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a replay."""

    image: str | None = None  # also for rollouts that name another one; None if all name one
    parallel: int = 1  # rollouts at once
    repeat: int = 1  # passes over all of them, one after the other
    think: float = 0.0  # seconds between two calls of a rollout, in place of a model's thinking
    timeout: float = DEFAULT_TIMEOUT  # seconds for calls without a timeout
    salt: str | None = None  # separates the states from those of other replays; None shares them

    def __post_init__(self) -> None:
        """Raises UsageError for options that make no sense."""
        for name in ("image", "salt"):
            if getattr(self, name) is not None:
                check_text(getattr(self, name), f"ReplayOptions.{name}")
        check_whole(self.parallel, "ReplayOptions.parallel", 1)
        check_whole(self.repeat, "ReplayOptions.repeat", 1)
        check_seconds(self.think, "ReplayOptions.think", least=0)
        check_seconds(self.timeout, "ReplayOptions.timeout")


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call that was made."""

    task: str  # task, rollout, name: as in the rollout file
    rollout: str
    name: str
    index: int  # its place in the rollout, from 0 on
    repeat: int  # its pass, from 0 on
    result: ToolResult  # its result
    state: str  # the state to which it led
    elapsed: float  # seconds until its caller had the answer
    not_shared: str | None = None  # the reason why it will not answer later rollouts; None if it will

    def data(self) -> dict[str, Any]:
        """Returns it as a line of `replay --outputs`."""
        return {
            **_values(self, "task", "rollout", "index", "repeat", "name"),
            **_values(self.result, "source", "exit_code", "timed_out", "truncated"),
            **self.result.as_json(),
            "duration": self.result.duration,
            **_values(self, "elapsed", "state", "not_shared"),
        }


@dataclass(slots=True)
class RolloutRun:
    """One rollout's run."""

    planned: PlannedRollout  # the rollout as planned
    repeat: int  # its pass, from 0 on
    calls: list[CallRecord] = field(default_factory=list)  # the calls made so far
    error: str = ""  # the reason of an early end, if tvsnap itself failed; else empty
    finished: bool = False  # it reached its end


class Listener(Protocol):
    """Is called about events, in the threads of these."""

    def called(self, record: CallRecord) -> None:
        """A call was answered."""

    def ended(self, run: RolloutRun) -> None:
        """A rollout reached its end, or tvsnap itself failed in it."""


@dataclass(frozen=True, slots=True)
class Latency:
    """The distribution of a duration."""

    n: int  # the number of samples
    p50: float | None  # p50 and p99: percentiles, milliseconds; None without samples
    p99: float | None

    @classmethod
    def of(cls, samples: Iterable[float]) -> Latency:
        """Returns that of `samples`, seconds. A percentile is the smallest sample that such a share does not exceed."""
        ordered = sorted(samples)
        if not ordered:
            return cls(0, None, None)
        p50, p99 = (ordered[math.ceil(part * len(ordered)) - 1] * 1000 for part in (0.50, 0.99))
        return cls(len(ordered), p50, p99)


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The results of a replay."""

    runs: tuple[RolloutRun, ...]  # all rollouts, in the order of the passes, the files and their lines
    stats: Stats | None  # the cache's statistics; None if a server does not show them, because this is a tenant's
    wall_s: float  # seconds from the first call to the end of the last
    passes_s: tuple[float, ...]  # seconds that each pass took
    interrupted: bool = False  # it was stopped before its end
    # The results of the audits of answers, except those that were not made yet when it was stopped
    audit: CheckReport = NOTHING_CHECKED

    @property
    def calls(self) -> list[CallRecord]:
        """The calls made, in the order of the passes, the files, their lines and their calls."""
        return [call for run in self.runs for call in run.calls]

    @property
    def failed(self) -> list[RolloutRun]:
        """The rollouts in which tvsnap itself failed."""
        return [run for run in self.runs if run.error]

    @property
    def not_shared(self) -> list[CallRecord]:
        """The calls whose answers cannot be shared."""
        return [call for call in self.calls if call.not_shared]

    def data(self) -> dict[str, Any]:
        """Returns it for `replay --report`."""
        calls, stats = self.calls, self.stats
        latencies = {
            source: Latency.of(call.elapsed for call in calls if call.result.source == source)
            for source in ("hit", "coalesced", "executed")
        }
        if stats is not None:
            for kind in ("fork", "start", "checkpoint"):
                latencies[kind] = Latency.of(stats.latency_s.get(kind, ()))
        return {
            **_counts(calls),
            "rollouts": len(self.runs),
            "wall_s": self.wall_s,
            **({} if stats is None else _counted(stats)),
            "audited": self.audit.checked,
            "audit_differences": [
                {"state": difference.edge.state, "call": difference.edge.call.canonical, "words": difference.words}
                for difference in self.audit.differences
            ],
            "latency_ms": {name: asdict(latency) for name, latency in latencies.items()},
            "interrupted": self.interrupted,
            "failed": [
                {**_values(run.planned, "task", "rollout"), **_values(run, "repeat", "error")} for run in self.failed
            ],
            "not_shared": [
                {**_values(call, "task", "rollout", "index", "repeat"), "reason": call.not_shared, "state": call.state}
                for call in self.not_shared
            ],
            "not_shared_reasons": dict(Counter(call.not_shared for call in self.not_shared).most_common()),
            "passes": [
                {
                    "repeat": number,
                    "rollouts": sum(run.repeat == number for run in self.runs),
                    "wall_s": wall_s,
                    **_counts([call for call in calls if call.repeat == number]),
                }
                for number, wall_s in enumerate(self.passes_s)
            ],
        }

    def write_outputs(self, stream: TextIO) -> None:
        """Writes a line of JSON for each call."""
        for call in self.calls:
            stream.write(json.dumps(call.data()) + "\n")


@dataclass(slots=True)
class Replay:
    """One replay.

    Args:
        cache: answers the calls, here or on a server, whose figures then include others' work meanwhile. If the replay
            is interrupted, it closes the cache, so that running calls end at once.
        rollouts: the rollouts.
        options: the options.
        listener: is called about events.
    """

    cache: CacheMethods[Any, Any]
    rollouts: Sequence[PlannedRollout]
    options: ReplayOptions
    listener: Listener | None = None
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _failure: BaseException | None = field(default=None, init=False)

    def run(self) -> ReplayReport:
        """Runs everything; an interrupt (Ctrl-C) ends it early, with a report on the part that was done.

        Raises:
            TvsnapError: no rollout can run at all, for example because the image is missing.
        """
        auditor: Auditor | None = getattr(self.cache, "audit", None)  # None at a server
        before = self._stats()
        runs = [RolloutRun(planned, n) for n in range(self.options.repeat) for planned in self.rollouts]
        began = time.perf_counter()
        passes: list[float] = []
        wall_s = 0.0
        interrupted = False
        try:
            for number in range(self.options.repeat):
                pass_began = time.perf_counter()
                try:
                    self._run_pass([run for run in runs if run.repeat == number])
                finally:
                    passes.append(time.perf_counter() - pass_began)
            wall_s = time.perf_counter() - began
            while auditor is not None and not auditor.wait(_POLL):
                pass
        except KeyboardInterrupt:
            interrupted = True
            wall_s = wall_s or time.perf_counter() - began
        started = [run for run in runs if run.calls or run.finished or run.error] if interrupted else runs
        audit = NOTHING_CHECKED if auditor is None else auditor.report()
        after = self._stats()
        stats = after.since(before) if auditor is None and before and after else after
        return ReplayReport(tuple(started), stats, wall_s, tuple(passes), interrupted, audit)

    def _stats(self) -> Stats | None:
        """Returns the cache's figures; None if a server does not show them to a tenant."""
        try:
            return self.cache.stats()
        except Forbidden:
            return None

    def _run_pass(self, runs: Sequence[RolloutRun]) -> None:
        waiting = iter(runs)  # each worker takes the next of these
        workers = [
            threading.Thread(target=self._work, args=(waiting,), name=f"replay-{number}", daemon=True)
            for number in range(min(self.options.parallel, len(runs)))
        ]
        try:
            for worker in workers:
                worker.start()
            while any(worker.is_alive() for worker in workers):
                for worker in workers:
                    worker.join(_POLL)
        except BaseException:
            self._stop.set()
            self.cache.close()
            deadline = time.monotonic() + _PATIENCE
            for worker in workers:
                worker.join(max(0.0, deadline - time.monotonic()))
            raise
        if self._failure is not None:
            raise self._failure

    def _work(self, waiting: Iterator[RolloutRun]) -> None:
        for run in waiting:
            if self._stop.is_set():
                return
            try:
                self._run_rollout(run)
            except TvsnapError as error:
                if self._stop.is_set():
                    return
                run.error = str(error)
            except BaseException as error:
                self._failure = error
                self._stop.set()
                return
            if self.listener is not None:
                self.listener.ended(run)

    def _run_rollout(self, run: RolloutRun) -> None:
        planned, options = run.planned, self.options
        image, label = options.image or planned.image or "", planned.rollout
        with self.cache.rollout(image, planned.task, options.salt, label, epoch=run.repeat) as rollout:
            for index, step in enumerate(planned.calls):
                if self._stop.is_set():
                    return
                private = rollout.private
                began = time.perf_counter()
                call = planned.made(step)
                result = rollout.call(call.name, call.arguments, timeout=step.timeout or options.timeout)
                elapsed = time.perf_counter() - began
                if options.think and index + 1 < len(planned.calls):
                    self._stop.wait(options.think)
                reason = rollout.unshared
                record = CallRecord(
                    planned.task,
                    planned.rollout,
                    step.call.name,
                    index,
                    run.repeat,
                    result,
                    rollout.state,
                    elapsed,
                    f"in a private branch: {reason}" if reason and private else reason,
                )
                run.calls.append(record)
                if self.listener is not None:
                    self.listener.called(record)
        run.finished = True


def _counted(stats: Stats) -> dict[str, Any]:
    """Returns the part of a report that the cache has counted."""
    return {
        **_values(stats, "replayed", "starts", "forks", "checkpoints", "evicted", "snapshots_refused"),
        "budget": {name: {"used": used, "limit": limit} for name, (used, limit) in stats.budget.items()},
        **_values(stats, "trouble", "prefix_hits"),
        "arrivals": dict(stats.arrivals),
        **_values(stats, "preforks", "preforks_used", "preforks_wasted"),
        **_values(stats, "saved_s", "fork_time_s", "replay_time_s", "checkpoint_time_s", "prefork_time_s"),
    }


def _values(of: object, *names: str) -> dict[str, Any]:
    """Returns some attributes of an object by their names."""
    return {name: getattr(of, name) for name in names}


def _counts(calls: Sequence[CallRecord]) -> dict[str, Any]:
    """Returns the part of a report that is about a set of calls."""
    by_source = {
        source: [call for call in calls if call.result.source == source] for source in ("hit", "coalesced", "executed")
    }
    hits, coalesced, executed = by_source.values()
    return {
        "calls": len(calls),
        "hits": len(hits),
        "coalesced": len(coalesced),
        "executed": len(executed),
        "hit_rate": (len(calls) - len(executed)) / len(calls) if calls else 0.0,
        "tool_time_s": sum(call.result.duration for call in calls),
        "executed_time_s": sum(call.result.duration for call in executed),
        "hit_time_s": sum(call.elapsed for call in hits),
        "hit_tool_time_s": sum(call.result.duration for call in hits),
        "coalesced_time_s": sum(call.elapsed for call in coalesced),
    }
