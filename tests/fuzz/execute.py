"""Executes a case: each history fresh, and through caches on one data directory, and compares what was seen."""

from __future__ import annotations

import contextlib
import inspect
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.cases import COUNT, TIMEOUT, Action, Case, Seen, Step, Violation
from tests.fuzz.compare import Ledger, agrees, comparable, difference
from tests.fuzz.helpers import Helper, Report
from tests.fuzz.places import Clock, Place, Play
from tests.fuzz.worlds import World
from tvsnap import Cache, InfrastructureError, Rollout
from tvsnap.environments import environment
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.sandboxes.protocol import Backend
from tvsnap.upkeep.maintenance import plan_gc, run_gc

FURTHER = 2
"""How many more fresh executions there are where one differs, to see what depends on chance."""
AT_ONCE = 4
BY_ROLLOUT = "by the rollout"
WAITS = "after" in inspect.signature(Rollout.call).parameters
"""Whether a wait can be said; otherwise it is made."""


@dataclass
class Outcome:
    """What came of a case.

    Attributes:
        violations: breaches of the promise.
        counts: `calls`, `hits`, `probes`, `fresh` (calls without the cache), `unreachable`, `undecided` (what was seen
            otherwise than in a fresh execution, where all further ones were cut short).
        unreachable: errors that the promise allows, and how often.
        broken: why the case says nothing; empty if it does.
    """

    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    unreachable: Counter[str] = field(default_factory=Counter)
    broken: str = ""


@dataclass(frozen=True)
class Doubt:
    """Something that was seen otherwise than in one fresh execution."""

    kind: str
    sequence: Play
    seen: Seen
    action: int
    how: str


class Executor:
    """Executes one case."""

    def __init__(self, world: World, home: Path, salt: str, case: Case, free: frozenset[str]) -> None:
        """Prepares it, and forks the processes that it needs.

        Args:
            world: where.
            home: the data directory.
            salt: separates the case from others on the same directory.
            case: what to do.
            free: reasons for which outputs may differ from a fresh execution's; see `FREE` and `IDS`.
        """
        self.outcome = Outcome()
        self._world, self._home, self._salt, self._case, self._free = world, home, salt, case, free
        self._fresh: dict[Play, Seen] = {}
        self._places: dict[int, Place] = {}
        self._doubts: list[Doubt] = []
        self._lock = threading.Lock()
        self._options = dict(case.options)
        self._cache: Cache
        self._uncached: Cache
        self._kept: Backend | None = None
        self._helpers: dict[tuple[int, int], Helper] = {}
        if world.programs:
            for index, action in enumerate(case.actions):
                if action.kind in ("processes", "kill"):
                    for number, play in enumerate(action.plays):
                        self._helpers[index, number] = Helper(lambda report, play=play: self._help(play, report))  # type: ignore[misc]

    def run(self) -> Outcome:
        """Executes all actions; returns what came of them."""
        try:
            with self._world.open(self._home, {"prefork": 0}, use_cache=False) as self._uncached:
                self._execute_fresh(self._sequences())
                with contextlib.ExitStack() as stack:
                    stack.callback(self._close)
                    self._open()
                    for index, action in enumerate(self._case.actions):
                        self._act(index, action)
                self._settle_doubts()
        except InfrastructureError as error:
            self.outcome.broken = f"{type(error).__name__}: {error}"
        finally:
            for helper in self._helpers.values():
                helper.end()
        return self.outcome

    # Without the cache.

    def _sequences(self) -> list[Play]:
        """Returns all sequences of calls whose results are needed, longest first."""
        found: set[Play] = set()
        whole: dict[int, Play] = {}
        for index, action in enumerate(self._case.actions):
            before = whole.get(action.of, ()) if action.kind in ("resume", "continue", "revisit") else ()
            plays = [(*before, *play) for play in action.plays or ((),)]
            whole[index] = plays[0]
            found.update(plays)
            if action.look:
                found.add((*plays[0], *action.look))
        return sorted(found, key=len, reverse=True)

    def _execute_fresh(self, sequences: Sequence[Play]) -> None:
        """Executes sequences, each in a sandbox of its own; those that begin another are done with it."""
        needed: list[Play] = []
        for sequence in sequences:
            if sequence and not any(other[: len(sequence)] == sequence for other in needed):
                needed.append(sequence)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for found in threads.map(self._fresh_run, needed):
                self._fresh.update(found)

    def _fresh_run(self, sequence: Play) -> dict[Play, Seen]:
        found: dict[Play, Seen] = {}
        with self._uncached.rollout(self._world.image, salt=self._salt) as rollout:
            clock = Clock()
            for index, number in enumerate(sequence):
                found[sequence[: index + 1]] = self._call(rollout, self._case.steps[number], clock)
                self.outcome.counts["fresh"] += 1
        return found

    def _settle_doubts(self) -> None:
        """Keeps of what was seen otherwise what further fresh executions do not see otherwise as well."""
        others: dict[Play, list[Seen]] = {}
        for doubt in self._doubts:
            step, expected = self._case.steps[doubt.sequence[-1]], self._fresh[doubt.sequence]
            if doubt.sequence not in others:
                runs = [self._fresh_run(doubt.sequence) for _ in range(FURTHER)]
                for run in runs:
                    self._file(run, doubt.sequence, others)
            if not any(comparable(other, expected) for other in others.get(doubt.sequence, ())):
                self.outcome.counts["undecided"] += 1
            elif not agrees(step, doubt.seen, expected, others[doubt.sequence], self._growing(doubt.sequence)):
                wanted, seen = difference(step, doubt.seen, expected)
                self.outcome.violations.append(
                    Violation(doubt.kind, step.topic, doubt.action, str(step), wanted, seen, doubt.how)
                )
        order = {violation: index for index, violation in enumerate(self.outcome.violations)}
        self.outcome.violations.sort(key=lambda violation: (violation.action, order[violation]))

    def _file(self, run: dict[Play, Seen], sequence: Play, others: dict[Play, list[Seen]]) -> None:
        """Files what a further fresh execution saw, up to where it came to something at another time than the first."""
        for length in range(1, len(sequence) + 1):
            prefix = sequence[:length]
            if not comparable(run[prefix], self._fresh[prefix]):
                return
            others.setdefault(prefix, []).append(run[prefix])

    # With it.

    def _open(self) -> None:
        self._cache = self._world.open(self._home, self._options, self._kept)
        if self._world.make is not None:
            self._kept = self._cache.backend  # what it holds lives in memory only

    def _close(self) -> None:
        for place in self._places.values():
            if place.rollout is not None:
                self._guard(place.rollout.close, -1)
                place.rollout = None
        self._guard(self._cache.close, -1)

    def _guard(self, action: object, index: int) -> None:
        """Does what must not fail."""
        assert callable(action)
        try:
            action()
        except Exception as error:
            self._error(index, None, error)

    def _error(self, index: int, step: Step | None, error: Exception) -> None:
        if isinstance(error, InfrastructureError):
            with self._lock:
                self.outcome.counts["unreachable"] += 1
                words = re.sub(r"[0-9a-f]{12,}|\{.*", "...", str(error))  # which state it was does not matter
                self.outcome.unreachable[f"{type(error).__name__}: {words[:120]}"] += 1
            return
        topic, words = (step.topic, str(step)) if step else ("", "close")
        self.outcome.violations.append(
            Violation(
                "error", topic, index, words, "an answer, or an InfrastructureError", repr(error)[:600], BY_ROLLOUT
            )
        )

    def _act(self, index: int, action: Action) -> None:
        if action.kind == "reopen":
            self._close()
            self._options = dict(action.options)
            self._open()
        elif action.kind == "evict":
            cache = self._cache
            try:
                run_gc(
                    self._home,
                    cache.graph,
                    cache.backend,
                    plan_gc(self._home, cache.graph, cache.backend, keep_bytes=0),
                )
            except Exception as error:
                self._error(index, None, error)
        elif action.kind in ("processes", "kill"):
            self._use_helpers(index, action)
        elif action.kind == "together":
            with ThreadPoolExecutor(len(action.plays)) as threads:
                list(threads.map(lambda play: self._begin(index, play, steady=False), action.plays))
        elif action.kind == "play":
            self._places[index] = place = self._begin(index, action.plays[0], hold=action.hold)
            self._look(index, action, place)
        elif action.of in self._places and not self._places[action.of].lost:
            self._places[index] = place = self._go_on(index, action, self._places[action.of])
            self._look(index, action, place)

    def _begin(self, index: int, play: Play, *, hold: bool = False, steady: bool = True) -> Place:
        """Makes a rollout."""
        place = Place((), "", Ledger())
        try:
            rollout = self._cache.rollout(self._world.image, salt=self._salt)
        except Exception as error:
            self._error(index, None, error)
            place.lost = True
            return place
        self._go(index, rollout, place, play, steady=steady)
        if hold:
            place.rollout = rollout
        else:
            self._guard(rollout.close, index)
        return place

    def _go_on(self, index: int, action: Action, before: Place) -> Place:
        """Goes on where another rollout was: with itself, with a new one, or not at all."""
        place = Place(before.sequence, before.state, before.ledger.copy(), before.clock.resumed())
        if action.kind == "revisit":
            return place
        rollout = before.rollout if action.kind == "continue" else None
        if rollout is not None:
            place.clock = before.clock
        else:
            try:
                rollout = self._cache.resume(before.state)
            except Exception as error:
                self._error(index, None, error)
                place.lost = True
                return place
        self._go(index, rollout, place, action.plays[0] if action.plays else ())
        if rollout is not before.rollout:
            self._guard(rollout.close, index)
        return place

    def _go(self, index: int, rollout: Rollout, place: Place, play: Play, *, steady: bool = True) -> None:
        """Makes calls; notes what they show.

        Args:
            index: the action's number.
            rollout: who makes them.
            place: where it stands, which is moved.
            play: the calls.
            steady: what a call led to is known before the next one is made.
        """
        alike = True
        for number in play:
            step = self._case.steps[number]
            try:
                seen = self._call(rollout, step, place.clock)
                if steady:
                    place.state = rollout.state
            except Exception as error:
                self._error(index, step, error)
                place.lost = True
                return
            alike = self._take(index, place, number, seen, alike)
        try:
            place.state = rollout.state
        except Exception as error:
            self._error(index, None, error)
            place.lost = True

    def _take(self, index: int, place: Place, number: int, seen: Seen, alike: bool, how: str = BY_ROLLOUT) -> bool:
        """Takes in what a call returned; returns whether the rollout still sees what a fresh one does."""
        step = self._case.steps[number]
        place.sequence = (*place.sequence, number)
        with self._lock:
            self.outcome.counts["calls" if how == BY_ROLLOUT else "probes"] += 1
            self.outcome.counts["hits"] += seen.source in ("hit", "coalesced")
        broken = place.ledger.note(step, seen, index, how)
        if broken is not None:
            self.outcome.violations.append(broken)
        expected = self._fresh.get(place.sequence)
        if not alike or expected is None or not comparable(seen, expected):
            return False
        if step.free in self._free or agrees(step, seen, expected, (), self._growing(place.sequence)):
            return alike
        kind = "other answer" if how == BY_ROLLOUT else "other state"
        self._doubts.append(Doubt(kind, place.sequence, seen, index, how))
        return False

    def _growing(self, sequence: Sequence[int]) -> list[str]:
        """Returns the directories in which a job of a history counts."""
        begun = [fact for number in sequence for fact in self._case.steps[number].sets]
        return [fact.removeprefix(COUNT) for fact in begun if fact.startswith(COUNT)]

    def _look(self, index: int, action: Action, place: Place) -> None:
        """Asks in a sandbox that is made of a rollout's state, as graders do."""
        if not action.look or place.lost or not place.state:
            return
        tools = environment(self._world.image.environment)
        at = Place(place.sequence, place.state, place.ledger.copy())
        limits = self._cache.limits_for(self._world.image)
        alike = True
        try:
            with self._cache.materialise(place.state) as sandbox:
                at.clock = place.clock.resumed()
                for number in action.look:
                    step = self._case.steps[number]
                    time.sleep(step.pause)
                    since, began = at.clock.enter(step), time.monotonic()
                    result = tools.execute(
                        sandbox, ToolCall(step.name, step.arguments), step.timeout or TIMEOUT, limits
                    )
                    seen = _seen(result, since, began)
                    alike = self._take(index, at, number, seen, alike, "in a sandbox made of its state")
        except Exception as error:
            self._error(index, None, error)

    def _call(self, rollout: Rollout, step: Step, clock: Clock) -> Seen:
        arguments, timeout = dict(step.arguments), step.timeout or TIMEOUT
        if WAITS and step.pause and rollout._engine._services.settings.use_cache:
            clock.waited += step.pause
            since, began = clock.enter(step), time.monotonic()
            result = rollout.call(step.name, arguments, timeout, after=step.pause)
        else:
            time.sleep(step.pause)
            since, began = clock.enter(step), time.monotonic()
            result = rollout.call(step.name, arguments, timeout)
        clock.leave(step)
        return _seen(result, since, began)

    # In processes of their own.

    def _help(self, play: Play, report: Report) -> None:
        """Makes a rollout in a process of its own."""
        with (
            contextlib.suppress(InfrastructureError),
            self._world.open(self._home, self._options) as cache,
            cache.rollout(self._world.image, salt=self._salt) as rollout,
        ):
            clock = Clock()
            for number in play:
                report(self._call(rollout, self._case.steps[number], clock))

    def _use_helpers(self, index: int, action: Action) -> None:
        helpers = [helper for (at, _), helper in self._helpers.items() if at == index]
        for helper in helpers:
            helper.start()
        for helper, play in zip(helpers, action.plays, strict=True):
            place, alike = Place((), "", Ledger()), True
            for number, seen in zip(
                play, helper.see(action.at, action.delay) if action.kind == "kill" else helper.seen(), strict=False
            ):
                alike = self._take(index, place, number, seen, alike)
            if action.kind == "processes" and helper.end():
                self._error(index, None, RuntimeError("a process that made a rollout failed"))


def _seen(result: ToolResult, since: tuple[tuple[float, float], ...], began: float) -> Seen:
    took = time.monotonic() - began
    said = (result.output, result.exit_code, result.timed_out, result.blocked, result.truncated)
    return Seen(*said, result.source, since, took)
