"""A rollout: its calls are answered from the graph if possible, and executed otherwise.

The flow of one call is `RolloutEngine.call`, from top to bottom.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue

from tvsnap.engine.between_calls import BetweenCalls
from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.claiming.claims import Claim
from tvsnap.engine.claiming.patience import latest_start
from tvsnap.engine.conclusion.conclusion import Conclusions
from tvsnap.engine.conclusion.recorder import Recorder
from tvsnap.engine.events import AnswerSource, CallEvents
from tvsnap.engine.execution.execution import TOOL_ERRORS
from tvsnap.engine.execution.executor import Executor
from tvsnap.engine.execution.own_sandbox import OwnSandbox
from tvsnap.engine.execution.uncached import UncachedCalls
from tvsnap.engine.file_calls import FileCalls
from tvsnap.engine.grade_calls import GradeCalls
from tvsnap.engine.host_calls import HostCalls, HostTools
from tvsnap.engine.live_sandbox import LiveSandbox
from tvsnap.engine.lookup.cursor import Cursor
from tvsnap.engine.lookup.grades import Grading
from tvsnap.engine.position import Position
from tvsnap.engine.services import Services
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.engine.transcript import Transcript
from tvsnap.graph import Edge, RootInfo, Step
from tvsnap.model.arguments import LONGEST, check_seconds, check_whole
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import CallCancelled, InfrastructureError, UsageError
from tvsnap.model.grades import Grade, Verifier
from tvsnap.model.operations.rollouts import Call
from tvsnap.sandboxes.protocol import Sandbox


@dataclass(frozen=True, slots=True)
class CacheHooks:
    """The functions of a cache that its rollouts use.

    Attributes:
        dropped: receives rollouts that nobody refers to any more, to close them.
        ended: is called with a rollout that has ended, its last position, and the error that ended it, if one did.
        resume: begins another rollout, given a state, a task, a label and an epoch; see `Cache.resume`.
        materialise: makes a sandbox in a state, for a grade.
    """

    dropped: SimpleQueue[RolloutEngine]
    ended: Callable[[RolloutEngine, Position, str | None], None]
    resume: Callable[[str, str, str, int | None], RolloutEngine]
    materialise: Callable[[str], contextlib.AbstractContextManager[LiveSandbox]]


class RolloutEngine:
    """The implementation of `Rollout`. Its calls are made one after the other.

    Attributes:
        id: the rollout's name in the graph; None if nothing is recorded.
        root: the hash of its root.
        salt: the text that separates its states from others'.
        tools: the tools that may be called, by name.
    """

    def __init__(
        self,
        services: Services,
        hooks: CacheHooks,
        recipe: Recipe,
        root: RootInfo,
        id: str | None,
        task: str,
        at: Position,
        deadline: float = math.inf,
        *,
        label: str = "",
        epoch: int | None = None,
    ) -> None:
        """`root` is the state of fresh sandboxes; `deadline` the end of the rollout's time, by time.monotonic()."""
        self.id = id
        self.root = root.hash
        self.salt = root.salt
        self.recipe = recipe
        self.tools = recipe.environment.tools
        self.files = FileCalls(services, self.tools)
        self._services = services
        self._hooks = hooks
        self._task = task
        self._label = label
        self._epoch = epoch
        self._deadline = deadline
        self._turn = threading.RLock()
        self._cursor = cursor = Cursor(services, recipe, at, task)
        recorder = Recorder(services.graph, services.backend.name, task, timeouts=services.settings.shares_timeouts)
        self._transcript = transcript = Transcript(services.graph, id, task)
        self._events = events = CallEvents(
            self, (transcript.answered, *services.on_answered), (transcript.executed, *services.on_executed)
        )
        claims = services.claims if services.settings.use_cache else None
        host_calls = HostCalls(services.graph, claims, recorder, recipe.environment, recipe.limits, root.salt)
        self._host = HostTools(recipe.environment, host_calls, cursor, transcript, events)
        self._grades = GradeCalls(host_calls, services.settings.grade_executions)
        self._own = OwnSandbox(services, recipe, root.hash)
        self._executor = Executor(services, recipe, self._own, cursor, root.hash)
        self._conclusions = Conclusions(services, recipe, recorder, cursor.hold)
        self._between = BetweenCalls(services, recipe, self._own, cursor, recorder, transcript, self._conclusions)
        use_cache, fresh = services.settings.use_cache, root.hash
        self._uncached = None if use_cache else UncachedCalls(services, recipe, fresh, cursor, events)
        self._under_way: Cancellation | None = None
        self._closed = False

    def may_stand_at(self, state: str) -> bool:
        """Returns whether it may stand at a state, without waiting for the last call. Any thread may call it."""
        return self._cursor.at.state == state or not self._cursor.caught_up

    def where(self) -> Position:
        """Returns its position; waits until the outcome of the last call is known.

        A sandbox that was given out is observed, because it may have been changed, and kept if it would change by
        itself.
        """
        if self._own.exposed:
            with self._turn, self._services.home.in_place():
                if not self._closed:
                    self._catch_up()
                    self._between.keep_fleeting()
        return self._cursor.where()

    def call(self, operation: Call, cancellation: Cancellation | None = None) -> ToolResult:
        """Makes a tool call; see `Rollout.call`. `cancellation` belongs to this call only."""
        cancellation = cancellation or Cancellation()
        timeout, after = _timeout(operation.timeout), check_seconds(operation.after, "after", least=0.0)
        until = operation.deadline
        deadline = math.inf if until is None else check_seconds(until, "deadline", least=0.0)
        paths, executions = operation.grade, self._services.settings.grade_executions
        grading = None if paths is None else Grading.of(paths, executions)
        call = ToolCall(operation.name, operation.arguments)
        try:
            with self._turn, self._services.home.in_place():
                self._under_way = cancellation
                try:
                    cancellation.check()
                    began = time.perf_counter()
                    try:
                        return self._make(call, timeout, after, deadline, cancellation, grading)
                    except InfrastructureError as error:
                        self._transcript.failed(call, time.perf_counter() - began, error)
                        raise
                finally:
                    self._under_way = None
        finally:
            cancellation.end()

    def cancel(self) -> bool:
        """Ends the call that another thread is making; see `Rollout.cancel`."""
        under_way = self._under_way
        if under_way is not None:
            under_way.cancel()
        return under_way is not None

    def _make(
        self,
        call: ToolCall,
        timeout: float,
        after: float,
        deadline: float,
        cancellation: Cancellation,
        grading: Grading | None,
    ) -> ToolResult:
        """Makes a call, in its turn."""
        if self._uncached is not None and call.name not in self._host.tools:
            return self._uncached.call(self.recipe.environment.tool(call), call, timeout, after, cancellation)
        # 1. The outcome of the last call must be known; then a recorded answer needs no sandbox.
        began, paused_s = time.perf_counter(), self._cursor.idle
        self._catch_up()
        if call.name in self._host.tools:
            until = latest_start(timeout, self._deadline, deadline)
            return self._host.call(call, timeout, after, until, cancellation, began)
        if self._events.calls:
            self._services.snapshotter.paused(paused_s)
        self._cursor.advance_time(after)
        edge = self._cursor.lookup(call, timeout, grading)
        if edge is None and grading is None and self._cursor.at.quiet_s < math.inf:
            edge = self._cursor.await_answer(call, timeout, cancellation.pause)
        if edge is not None and self._executor.answers_by(edge):
            return self._follow(edge, "hit", began)
        tool = self.recipe.environment.tool(call)
        why = self._cursor.why_executed(tool, call, timeout, edge, grading)
        # 2. Of all rollouts that miss this call in this state, one executes it, and the others take its result.
        able, claim, stood_at = self._executor.is_able, None, self._cursor.at
        if edge is None and (grading is None or grading.executions <= 1):  # otherwise each rollout executes it
            until, at_hand = latest_start(timeout, self._deadline, deadline), not self._own.absent
            claim = self._cursor.claim(tool, call, timeout, until, able, cancellation, at_hand=at_hand)
        if isinstance(claim, Edge):
            return self._follow(claim, "coalesced", began)
        try:
            # 3. Acquire a sandbox in this state, in the cheapest way; 4. execute the call in it.
            outcome = self._executor.execute(tool, call, timeout, claim, cancellation, grading)
            if isinstance(outcome, Edge):
                return self._follow(outcome, "coalesced", began)
            live, execution, way = outcome
            # 5. A worker concludes the call while the caller thinks.
            step = self._transcript.step(execution.result, way or "executed", time.perf_counter() - began, why.words)
            concluding = self._conclusions.begin(live, execution, step, exposed=self._own.exposed)
            self._cursor.lead_to(concluding.outcome)
            self._own.free_later(concluding.freed)
        except BaseException as error:
            untouched = isinstance(error, CallCancelled) or (
                isinstance(error, TOOL_ERRORS) and self._own.spare(tool, self._cursor.at)
            )
            self._abandon(claim, untouched=untouched)
            self._cursor.stand_at(stood_at)
            raise
        self._events.executed(call, execution.result, time.perf_counter() - began, way, why)
        return execution.result

    def try_hit(self, operation: Call) -> ToolResult | None:
        """Makes a tool call if the graph has the answer, without waiting for anything; None if it was not made.

        Raises UsageError if the arguments make no sense.
        """
        timeout, after = _timeout(operation.timeout), check_seconds(operation.after, "after", least=0.0)
        paths, executions = operation.grade, self._services.settings.grade_executions
        grading = None if paths is None else Grading.of(paths, executions)
        call = ToolCall(operation.name, operation.arguments)
        if self._uncached is not None or not self._turn.acquire(blocking=False):
            return None
        try:
            if self._own.exposed or self._closed or self.pending() is not None:
                return None
            began = time.perf_counter()
            self._cursor.catch_up()
            self._cursor.advance_time(after)
            if call.name in self._host.tools:
                return self._host.look_up(call, timeout, began)
            edge = self._cursor.lookup(call, timeout, grading, patient=False)
            if edge is None or not self._executor.answers_by(edge):
                return None
            return self._follow(edge, "hit", began)
        finally:
            self._turn.release()

    @property
    def place(self) -> Position | None:
        """Its position; None where it has to be found out: an outcome is coming, or its sandbox is given out."""
        return None if self._own.exposed or self._cursor.pending() is not None else self._cursor.where()

    def pending(self) -> Future[Position] | None:
        """Returns a future that is done once the last call's outcome is known; None if it is known already."""
        return self._cursor.pending()

    def grade(self, verifier: Verifier) -> Grade:
        """Grades the state at which it stands; see `Rollout.grade`."""
        with self._turn, self._services.home.in_place():
            self._catch_up()
            try:
                answer = self._grades.grade(verifier, self._cursor.at, self._fork_aside)
            finally:
                self._between.rest()
            if answer.edge is not None:
                self._services.graph.touch_hit(answer.edge, self._task)
            grade = Grade.of_result(answer.result)
            self.record(grade.reward)
            return grade

    def steps(self) -> list[Step]:
        """Returns its recorded calls in order."""
        return [] if self.id is None else self._services.graph.steps(self.id)

    def record(self, reward: float) -> None:
        """Records a reward; see `Rollout.record`."""
        if self.id is not None:
            with contextlib.suppress(InfrastructureError):  # a full disk must not fail a rollout
                self._services.graph.record_reward(self.id, reward)

    @contextlib.contextmanager
    def _fork_aside(self) -> Iterator[Sandbox]:
        """A block with a fork of its sandbox at its position and time, which changes nothing for the rollout."""
        fork = self._between.fork_aside() if self._uncached is None else self._uncached.fork()
        if fork is None:
            with self._hooks.materialise(self._cursor.at.state) as live:
                self._cursor.await_time(live)
                yield live.sandbox
            return
        try:
            self._cursor.await_time(fork)
            yield fork.sandbox
        finally:
            self._services.pool.discard(fork)

    def fork(self, n: int) -> list[RolloutEngine]:
        """Begins several rollouts at this one's position; see `Rollout.fork`."""
        check_whole(n, "n", 1)
        if self._uncached is not None:
            raise UsageError("a rollout without the cache cannot be forked: nothing of it is recorded")
        with self._turn:
            self._catch_up()
            self._between.keep_fleeting()
            with contextlib.ExitStack() as undo:
                state, task, forks = self._cursor.at.state, self._task, []
                for _ in range(n):
                    forks.append(self._hooks.resume(state, task, self._label, self._epoch))
                    undo.callback(forks[-1].close)
                lacking = [fork for fork in forks if not fork.has_sandbox]
                own = self._own.standing_at(state)
                copies = self._between.fork_in_time(len(lacking))
                for fork in forks:
                    fork._cursor.go_on_from(self._cursor)
                for fork, live in zip(lacking, copies, strict=False):
                    fork.begin_in(live)
                    if own is not None:  # both have run for as long, but for the time from the snapshot to the copy
                        fork._cursor.leave_out(live.since - own.since)
                for fork in forks:
                    self._services.companions.begun(fork, fork._cursor.at)
                undo.pop_all()
                return forks

    @property
    def has_sandbox(self) -> bool:
        """Whether the rollout has its own sandbox."""
        return not self._own.absent

    def reach(self) -> None:
        """Makes a sandbox for the next call now, if the rollout has none; see `BetweenCalls.reach`."""
        with self._turn:
            self._catch_up()
            self._between.reach()
            self._between.rest()

    def sandbox(self) -> Sandbox:
        """Returns the rollout's own sandbox; see `Rollout.sandbox`."""
        with self._turn:
            if self._uncached is not None:
                return self._uncached.live().sandbox
            self._catch_up()
            return self._between.give_out()

    def keep(self, label: str, output: str) -> str:
        """Snapshots the sandbox that was given out, with all that was done in it; see `Rollout.keep`."""
        with self._turn:
            return self._between.keep(label, output)

    def snapshot_if_idle(self) -> bool:
        """Snapshots the present state; see `Rollout.snapshot_if_idle`."""
        with self._if_idle() as idle:
            return idle and self._between.snapshot()

    def fork_if_idle(self, state: str) -> LiveSandbox | None:
        """Returns a fork of the rollout's own sandbox, without keeping a snapshot.

        Returns:
            None if no sandbox of its own stands at `state` (the rollout may have gone on), or if a call is being made.

        Raises:
            StateLost: no snapshot can be taken of it, with the reason in words.
            InfrastructureError: the snapshot, or the fork of it, failed.
        """
        with self._if_idle() as idle:
            forks = self._between.fork() if idle and self._cursor.at.state == state else []
            return forks[0] if forks else None

    def fork_uncached(self, state: str) -> LiveSandbox | None:
        """Returns a fork of a sandbox without the cache, or a fresh one for the root; see `fork_if_idle`."""
        if state == self.root:
            return self._services.acquirer.start(state, self.recipe)
        with self._turn:
            if self._closed or self._uncached is None or self._cursor.at.state != state:
                return None
            return self._uncached.fork()

    @contextlib.contextmanager
    def _if_idle(self) -> Iterator[bool]:
        """A block between two calls, after the outcome of the last one; yields False while a call is being made."""
        if not self._turn.acquire(blocking=False):
            yield False
            return
        try:
            self._catch_up()
            yield True
        finally:
            self._between.rest()
            self._turn.release()

    def begin_in(self, live: LiveSandbox | None) -> None:
        """Gives a sandbox that stands at the rollout's state to a rollout that has made no call."""
        self._own.take(live)

    def lacks_sandbox(self, state: str) -> bool:
        """Returns whether it stands at a state and has no sandbox. Any thread may call it; the answer may change."""
        return not self._closed and self._own.absent and self._cursor.at.state == state

    def make_companion(self, state: str) -> bool:
        """Makes a sandbox for the rollout in `state`, unless the rollout has gone on. A call meanwhile waits for it.

        Returns:
            False if there was no room for one, or if the rollout is busy, for example with a grade of that state.

        Raises:
            InfrastructureError: no sandbox could be made.
        """
        if not self._services.pool.has_room or not self._turn.acquire(blocking=False):
            return False
        try:
            if not self.lacks_sandbox(state) or not self._cursor.caught_up:
                return True
            at, coming = self._cursor.at, self._own.await_one()
        finally:
            self._turn.release()
        self._own.make_ahead(at, coming)
        return True

    def close(self, outcome: str | None = None) -> None:
        """Ends the rollout; see `Rollout.close`. `outcome` is the error that ended it, in words."""
        if self._services.home.forked_off:
            return
        with self._turn, self._services.home.in_place():
            if self._closed:
                return
            self._closed = True
            try:
                self._cursor.catch_up()
            finally:
                self._leave_sandbox()
                self._cursor.let_go()
                self._hooks.ended(self, self._cursor.at, outcome)

    def close_if_idle(self) -> None:
        """Ends the rollout unless a call of it is being executed."""
        if self._turn.acquire(blocking=False):
            try:
                self.close()
            finally:
                self._turn.release()

    def drop(self) -> None:
        """Has the cache close the rollout, because nobody refers to it any more."""
        if not self._closed:
            self._hooks.dropped.put(self)

    def _catch_up(self) -> None:
        """Moves to the outcome of the last call, and detects changes in a sandbox that was given out."""
        if self._closed:
            raise UsageError("the rollout is closed")
        self._services.home.check()
        self._cursor.catch_up()
        if self._own.exposed:
            self._between.notice_changes()

    def _follow(self, edge: Edge, source: AnswerSource, began: float) -> ToolResult:
        """Moves along an edge; returns its result."""
        if edge.changed:
            self._leave_sandbox()
        self._cursor.follow(edge)
        seconds = time.perf_counter() - began
        self._events.answered(edge, source, self._cursor.at, seconds, without_sandbox=self._own.absent)
        return edge.result if source == "hit" else edge.result.from_source("coalesced")

    def _abandon(self, claim: Claim | None, *, untouched: bool) -> None:
        """Gives up a call that was not executed to its end: the next rollout that wants it executes it.

        If it was not even begun, or changed nothing (`untouched`), the sandbox is kept.
        """
        if claim is not None:
            self._services.claims.release(claim)
        if not (self._own.busy or untouched):
            self._own.drop()

    def _leave_sandbox(self) -> None:
        """Gives the rollout's sandbox up; parks it for others if they may have it."""
        if self._uncached is not None:
            self._uncached.close()
        self._own.leave(shared=not self._cursor.at.private)


def _timeout(seconds: float | None) -> float:
    """Returns a call's timeout as seconds; None stands for the longest possible one."""
    return float(LONGEST) if seconds is None else check_seconds(seconds)
