"""A rollout: its calls are answered from the graph where they can be, and executed where they must be.

The flow of one call is `RolloutEngine.call`, from top to bottom.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from queue import SimpleQueue

from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.claiming.claims import Claim
from tvsnap.engine.claiming.hedge import Hedge
from tvsnap.engine.conclusion.conclusion import Conclusions
from tvsnap.engine.conclusion.recorder import Aftermath, Recorder
from tvsnap.engine.context import Context
from tvsnap.engine.execution.executed import TOOL_ERRORS, Executed
from tvsnap.engine.execution.execution import Execution
from tvsnap.engine.execution.own_sandbox import OwnSandbox
from tvsnap.engine.execution.uncached import UncachedSandbox
from tvsnap.engine.file_calls import FileCalls
from tvsnap.engine.grade_calls import GradeCalls
from tvsnap.engine.host_calls import HostAnswer, HostCalls
from tvsnap.engine.live import LiveSandbox
from tvsnap.engine.lookup.cursor import Cursor
from tvsnap.engine.lookup.grades import Grading
from tvsnap.engine.position import Position
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.engine.transcript import Transcript
from tvsnap.environments.tools import Tool
from tvsnap.graph import Edge, RootInfo, Step
from tvsnap.model.arguments import LONGEST, check_seconds, check_whole
from tvsnap.model.calls import Source, ToolCall, ToolResult, next_state
from tvsnap.model.errors import CallCancelled, InfrastructureError, SandboxDied, StateLost, TvsnapError, UsageError
from tvsnap.model.grades import Grade, Verifier
from tvsnap.model.operations.rollouts import Call
from tvsnap.model.reasons import Why
from tvsnap.model.stats import Way
from tvsnap.sandboxes.protocol import Sandbox

_LOG = logging.getLogger("tvsnap.calls")
"""One line at level DEBUG for each call: what answered it, or why nothing did."""
SPARE = 0.01  # of the time until a deadline: nobody has planned it to the hundredth
OUTSIDE = "(outside)"
"""Stands in the graph in place of a tool, for what was done in a sandbox that `Rollout.sandbox` gave out."""


@dataclass(frozen=True, slots=True)
class CacheHooks:
    """What a cache does for its rollouts.

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
        salt: the text that keeps its states apart from others'.
        tools: the tools that may be called, by name.
    """

    def __init__(
        self,
        context: Context,
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
        """`root` is the state of fresh sandboxes.

        `deadline`, by time.monotonic(), is when the rollout has to be done. `label` and `epoch` are what people know it
        by.
        """
        self.id = id
        self.root = root.hash
        self.salt = root.salt
        self.recipe = recipe
        self.tools = recipe.environment.tools
        self.files = FileCalls(context, self.tools)
        self._context = context
        self._hooks = hooks
        self._task = task
        self._label = label
        self._epoch = epoch
        self._deadline = deadline
        self._recorder = Recorder(context.graph, context.backend.name, task, timeouts=context.shares_timeouts)
        claims = context.claims if context.use_cache else None
        self._host_calls = HostCalls(
            context.graph, claims, self._recorder, recipe.environment, recipe.limits, root.salt
        )
        self._grade_calls = GradeCalls(self._host_calls, context.grade_executions)
        self._cursor = Cursor(context, recipe, at, task)
        self._turn = threading.RLock()
        self._transcript = Transcript(context.graph, id)
        self._calls = 0
        self._own = OwnSandbox(context, recipe, root.hash)
        self._uncached = UncachedSandbox(context, recipe, root.hash)
        self._apart = "" if context.use_cache else secrets.token_hex(16)
        self._execution = Execution(recipe, self._own, self._cursor)
        self._conclusions = Conclusions(context, recipe, self._recorder, self._cursor.hold)
        self._under_way: Cancellation | None = None
        self._closed = False

    def may_stand_at(self, state: str) -> bool:
        """Returns whether it may stand at a state, as far as that is known without waiting. Any thread may call it."""
        return self._cursor.at.state == state or not self._cursor.caught_up

    def where(self) -> Position:
        """Returns where it stands; waits until it is known where the last call led.

        A sandbox that was given out is looked at, as it may have been changed.
        """
        if self._own.exposed:
            with self._turn, self._context.home.in_place():
                if not self._closed:
                    self._catch_up()
        return self._cursor.where()

    def call(self, operation: Call, cancellation: Cancellation | None = None) -> ToolResult:
        """Makes a tool call; see `Rollout.call`. `cancellation` belongs to this call only."""
        cancellation = cancellation or Cancellation()
        timeout, after = _timeout(operation.timeout), check_seconds(operation.after, "after", least=0.0)
        until = operation.deadline
        deadline = math.inf if until is None else check_seconds(until, "deadline", least=0.0)
        grading = None if operation.grade is None else self._grading(operation.grade)
        call = ToolCall(operation.name, operation.arguments)
        try:
            with self._turn, self._context.home.in_place():
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
        if self._is_on_host(call.name):
            return self._call_on_host(call, timeout, after, deadline, cancellation)
        if not self._context.use_cache:
            return self._call_uncached(call, timeout, after, cancellation)
        # 1. It must be known where the last call led; then a recorded answer needs no sandbox.
        began, paused_s = time.perf_counter(), self._cursor.idle
        self._catch_up()
        if self._calls:
            self._context.snapshotter.paused(paused_s)
        self._cursor.advance_time(after)
        edge = self._cursor.lookup(call, timeout, grading)
        if edge is None and grading is None and self._cursor.at.quiet_s < math.inf:
            edge = self._cursor.await_answer(call, timeout, cancellation.pause)
        if edge is not None and self._is_answered_by(edge):
            return self._follow(edge, "hit", began)
        tool = self._tool(call)
        why = self._why_executed(tool, call, timeout, edge, grading)
        # 2. Of all rollouts that miss this call in this state, one executes it, and the others take its result.
        able, claim, stood_at = self._is_able, None, self._cursor.at
        if edge is None and (grading is None or grading.executions <= 1):  # otherwise each rollout executes it
            until, at_hand = self._wait_until(timeout, deadline), not self._own.absent
            claim = self._cursor.claim(tool, call, timeout, until, able, cancellation, at_hand=at_hand)
        if isinstance(claim, Edge):
            return self._follow(claim, "coalesced", began)
        try:
            # 3. Acquire a sandbox in this state, in the cheapest way; 4. execute the call in it.
            made = self._execute(tool, call, timeout, claim, cancellation, grading)
            if isinstance(made, Edge):
                return self._follow(made, "coalesced", began)
            live, executed, way = made
            # 5. The rest is done while the caller thinks.
            step = self._transcript.executed(executed.result, way or "executed", time.perf_counter() - began, why.words)
            concluding = self._conclusions.begin(live, executed, step, exposed=self._own.exposed)
            self._cursor.lead_to(concluding.outcome)
            self._own.free_later(concluding.freed)
        except BaseException as error:
            untouched = isinstance(error, CallCancelled) or (
                isinstance(error, TOOL_ERRORS) and self._own.spare(tool, self._cursor.at)
            )
            self._abandon(claim, untouched=untouched)
            self._cursor.stand_at(stood_at)
            raise
        seconds = time.perf_counter() - began
        self._calls += 1
        self._context.meter.executed(executed.result.duration, seconds, self._calls, way, why.kind)
        if _LOG.isEnabledFor(logging.DEBUG):
            sandbox = "the rollout's sandbox" if way is None else f"a sandbox that was {way}"
            self._log(call, f"executed in {sandbox}, because {why.words}", seconds)
        return executed.result

    def _why_executed(
        self, tool: Tool, call: ToolCall, timeout: float, edge: Edge | None, grading: Grading | None
    ) -> Why:
        """Returns why a call is not answered, not even by its record `edge` where there is one."""
        if edge is not None:
            return Why("cheap", "answering it would have taken longer than executing it")
        at, context = self._cursor.at, self._context
        if at.private:
            return Why("private", f"the rollout is private: {at.private}")
        if tool.stochastic or not tool.cacheable:
            return Why("unshared", f"calls of {call.name} are never answered")
        if grading is not None and grading.executions > 1:
            return Why("unshared", "its grade is not settled yet")
        return context.graph.why_unanswered(at.state, call.key, timeout, context.backend.name)

    def _log(self, call: ToolCall, words: str, seconds: float) -> None:
        _LOG.debug("%s %s: %s (%.1f ms)", self.id or "-", call.brief, words, seconds * 1e3)

    def _is_answered_by(self, edge: Edge) -> bool:
        """Returns whether a call is to be answered by its record.

        It is executed instead if all of this holds: processors are short, the rollout has a sandbox or stands where it
        can start one, the call is proven to lead to the same state each time, and executing it, and those that usually
        follow, takes less than the fork that the answer would soon make necessary. A call that has written files and
        printed something may have printed their times, so another execution might lead to another state.
        """
        if not (edge.changed and edge.proven) or (self._own.absent and self._cursor.at.state != self.root):
            return True
        fork_s, seconds = self._context.acquirer.fork_s, edge.result.duration
        if seconds >= fork_s or not self._context.processors.short:
            return True
        graph = self._context.graph
        if seconds + graph.seconds_ahead(edge.next_state, fork_s - seconds) >= fork_s:
            return True
        return bool(edge.result.output) and graph.file_times(edge) is not None

    def _execute(
        self,
        tool: Tool,
        call: ToolCall,
        timeout: float,
        claim: Claim | None,
        cancellation: Cancellation,
        grading: Grading | None,
    ) -> Edge | tuple[LiveSandbox, Executed, Way | None]:
        """Executes a call like `Execution.execute`; returns the result of another rollout if that was faster."""
        if claim is None:
            return self._execution.execute(tool, call, timeout, claim, cancellation, grading)
        claims, edge = self._context.claims, None
        claim.wanted.patience.execute()
        hedge = Hedge(claims, claim, self._cursor.keeps, cancellation) if claim.beside else None
        try:
            made = self._execution.execute(tool, call, timeout, claim, cancellation, grading)
        except TvsnapError:
            edge = None if hedge is None else hedge.outlast()
            if edge is None:
                raise
        except BaseException:
            if hedge is not None:
                hedge.end()
            raise
        else:
            edge = None if hedge is None else hedge.end()
            if edge is None and not cancellation.wanted:
                edge = claims.end(claim, made[1].result.duration)
                edge = edge if edge is not None and self._cursor.keeps(edge) else None
            if edge is None:
                return made
        self._own.drop()
        claims.release(claim)
        return edge

    def _grading(self, grade: Sequence[str]) -> Grading:
        """Checks the argument `grade` of a call."""
        if isinstance(grade, str) or not all(isinstance(path, str) and path.startswith("/") for path in grade):
            raise UsageError(f"grade must be a list of absolute paths of files inside, not {grade!r}")
        return Grading(tuple(grade), self._context.grade_executions)

    def _is_able(self) -> bool:
        """Returns whether the rollout has a sandbox, or there is room for one."""
        return not self._own.absent or self._context.pool.has_room

    def _wait_until(self, timeout: float, deadline: float) -> float:
        """Returns when a call has to be executed at the latest to meet the deadlines, by time.monotonic().

        A call whose timeout would end after the deadline may still wait for a small part of the time that is left, as
        most calls take far less than their timeouts.
        """
        now = time.monotonic()
        ahead = [end for end in (self._deadline, now + deadline) if end > now]  # deadlines that have passed are ignored
        end = min(ahead, default=math.inf)
        return max(end - timeout, now + SPARE * (end - now))

    def try_hit(self, operation: Call) -> ToolResult | None:
        """Makes a tool call if the graph has the answer, without waiting for anything; None if it was not made.

        Raises UsageError if the arguments make no sense.
        """
        timeout, after = _timeout(operation.timeout), check_seconds(operation.after, "after", least=0.0)
        grading = None if operation.grade is None else self._grading(operation.grade)
        call = ToolCall(operation.name, operation.arguments)
        if not self._context.use_cache or not self._turn.acquire(blocking=False):
            return None
        try:
            if self._own.exposed or self._closed or self.pending() is not None:
                return None
            began = time.perf_counter()
            self._cursor.catch_up()
            self._cursor.advance_time(after)
            if self._is_on_host(call.name):
                return self._answer_on_host(call, timeout, began)
            edge = self._cursor.lookup(call, timeout, grading, patient=False)
            if edge is None or not self._is_answered_by(edge):
                return None
            return self._follow(edge, "hit", began)
        finally:
            self._turn.release()

    @property
    def is_given_out(self) -> bool:
        """Whether its sandbox was given out by `sandbox`, so that it is not known what is done in it."""
        return self._own.exposed

    def pending(self) -> Future[Position] | None:
        """Returns a future that is done once it is known where the last call led; None if that is known already."""
        return self._cursor.pending()

    def grade(self, verifier: Verifier) -> Grade:
        """Grades the state at which it stands; see `Rollout.grade`."""
        with self._turn, self._context.home.in_place():
            self._catch_up()
            try:
                answer = self._grade_calls.grade(verifier, self._cursor.at, self._fork_aside)
            finally:
                self._rest()
            if answer.edge is not None:
                self._context.graph.touch_hit(answer.edge, self._task)
            grade = Grade.of_result(answer.result)
            self.record(grade.reward)
            return grade

    def steps(self) -> list[Step]:
        """Returns its calls in order, as far as they are recorded."""
        return [] if self.id is None else self._context.graph.steps(self.id)

    def record(self, reward: float) -> None:
        """Records a reward; see `Rollout.record`."""
        if self.id is not None:
            with contextlib.suppress(InfrastructureError):  # a full disk must not fail a rollout
                self._context.graph.record_reward(self.id, reward)

    @contextlib.contextmanager
    def _fork_aside(self) -> Iterator[Sandbox]:
        """A block with a fork of its sandbox where and when it stands, which changes nothing for the rollout."""
        context, at = self._context, self._cursor.at
        fork = None
        if not context.use_cache:
            fork = context.acquirer.fork_beside(self._uncached.live(), self.recipe)
        elif not at.recorded:
            self._own.acquire(at)
            fork = self._fork_beside_own(at.state)
        elif at.waited:  # its sandbox has run for as long, and a fork of the state's snapshot would yet have to
            with contextlib.suppress(StateLost):
                fork = self._fork_beside_own(at.state)
        if fork is None:
            with self._hooks.materialise(at.state) as live:
                self._cursor.make_up_time(live)
                yield live.sandbox
            return
        try:
            self._cursor.make_up_time(fork)
            yield fork.sandbox
        finally:
            context.pool.discard(fork)

    def fork(self, n: int) -> list[RolloutEngine]:
        """Begins several rollouts where this one stands; see `Rollout.fork`."""
        check_whole(n, "n", 1)
        if not self._context.use_cache:
            raise UsageError("a rollout without the cache cannot be forked: nothing of it is recorded")
        with self._turn:
            self._catch_up()
            with contextlib.ExitStack() as undo:
                state, task, forks = self._cursor.at.state, self._task, []
                for _ in range(n):
                    forks.append(self._hooks.resume(state, task, self._label, self._epoch))
                    undo.callback(forks[-1].close)
                    forks[-1]._cursor.go_on_from(self._cursor)
                undo.pop_all()
                return forks

    @property
    def has_sandbox(self) -> bool:
        """Whether the rollout has its own sandbox."""
        return not self._own.absent

    def sandbox(self) -> Sandbox:
        """Returns the rollout's own sandbox; see `Rollout.sandbox`."""
        with self._turn:
            if not self._context.use_cache:
                return self._uncached.live().sandbox
            self._catch_up()
            live, _ = self._own.acquire(self._cursor.at)
            if live.observation is None:
                live.observation = self.recipe.environment.observe(live.sandbox)
            self._cursor.make_up_time(live)
            live.sandbox.note()
            live.expendable = False
            self._own.exposed = True
            return live.sandbox

    def keep(self, label: str, output: str) -> str:
        """Snapshots what was done in the sandbox that was given out; see `Rollout.keep`."""
        with self._turn:
            live = self._own.live if self._own.exposed else None
            if live is None:
                raise UsageError("there is no sandbox to keep; ask for one with Rollout.sandbox")
            before = self._cursor.at
            self._notice_outside(label, output)
            if self._own.live is None:
                raise InfrastructureError("the sandbox has ended: what was done in it is lost")
            if self._cursor.at != before:
                with self._looking_again(live):
                    self._context.snapshotter.take(live, pinned=True)
            return self._cursor.at.state

    def snapshot_if_idle(self) -> bool:
        """Snapshots the present state; see `Rollout.snapshot_if_idle`."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            self._catch_up()
            live = self._own.standing_at(self._cursor.at.state)
            if live is not None:
                with self._looking_again(live):
                    self._context.snapshotter.take(live)
                live.expendable = not self._own.exposed
            return live is not None
        finally:
            self._rest()
            self._turn.release()

    def fork_if_idle(self, state: str) -> LiveSandbox | None:
        """Returns a fork of the rollout's own sandbox, without keeping a snapshot.

        Returns:
            None if no sandbox of its own stands at `state`, as the rollout may have gone on, or if a call is being
            made.

        Raises:
            StateLost: no snapshot can be taken of it, with the reason in words.
            InfrastructureError: the snapshot, or the fork of it, failed.
        """
        if not self._turn.acquire(blocking=False):
            return None
        try:
            self._catch_up()
            return self._fork_beside_own(state) if self._cursor.at.state == state else None
        finally:
            self._rest()
            self._turn.release()

    def _fork_beside_own(self, state: str) -> LiveSandbox | None:
        """Returns a fork of its own sandbox, see `fork_if_idle`; None if it has none that stands at a state."""
        live = self._own.standing_at(state)
        if live is None:
            return None
        with self._looking_again(live):
            return self._context.acquirer.fork_beside(live, self.recipe)

    def _rest(self) -> None:
        """Lets its own sandbox, if it has one at hand, make room for others again, between two calls."""
        if self._own.live is not None:
            self._context.pool.rest(self._own.live)

    def begin_in(self, live: LiveSandbox | None) -> None:
        """Gives a sandbox that stands at the rollout's state to a rollout that has made no call."""
        self._own.take(live)

    def lacks_sandbox(self, state: str) -> bool:
        """Returns whether it stands at a state and has no sandbox. Any thread may call it; the answer may change."""
        return not self._closed and self._own.absent and self._cursor.at.state == state

    def make_companion(self, state: str) -> bool:
        """Makes a sandbox for the rollout in `state`, unless the rollout has gone on. A call meanwhile waits for it.

        Returns:
            False if there was no room for one.

        Raises:
            InfrastructureError: no sandbox could be made.
        """
        if not self._context.pool.has_room:
            return False
        if not self._turn.acquire(blocking=False):
            return True
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
        if self._context.home.forked_off:
            return
        with self._turn, self._context.home.in_place():
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
        """Has the cache close the rollout, as nobody refers to it any more."""
        if not self._closed:
            self._hooks.dropped.put(self)

    # Where it stands.

    def _catch_up(self) -> None:
        """Moves to where the last call led, and detects changes in a sandbox that was given out."""
        if self._closed:
            raise UsageError("the rollout is closed")
        self._context.home.check()
        self._cursor.catch_up()
        if self._own.exposed:
            self._notice_outside()

    def _notice_outside(self, label: str | None = None, output: str = "") -> None:
        """Goes on in a private branch if a sandbox that was given out has changed."""
        live = self._own.standing_at(self._cursor.at.state)
        if live is None:
            return
        try:
            observation = self.recipe.environment.observe(live.sandbox)
        except SandboxDied:
            self._own.drop()
            return
        if observation != live.observation or not live.sandbox.go_back():
            live.sandbox.settle(changed=True)
            call = ToolCall(OUTSIDE, {"what": label} if label else {})
            reason = label or "changed from outside, in the sandbox that was given out"
            left = Aftermath(False, quiet_s=observation.quiet_s, active=observation.active)
            result = ToolResult.of_text(output, None, 0.0)
            step = self._transcript.executed(result, "executed", 0.0, reason)
            self._cursor.stand_at(self._recorder.branch_off(self._cursor.at, call, result, reason, left, step))
            live.state, live.observation, live.since = self._cursor.at.state, observation, self._cursor.at.since
        live.sandbox.note()  # from here on, changes count as new ones

    @contextlib.contextmanager
    def _looking_again(self, live: LiveSandbox) -> Iterator[None]:
        """A block in which a snapshot of the sandbox is taken between two calls; it is observed again at the end."""
        self._look_at_private(live)
        try:
            yield
        finally:
            if not self._conclusions.look_again(live):
                self._own.drop()

    def _look_at_private(self, live: LiveSandbox) -> None:
        """Finds out how time counts in a state of a private branch; such a state is observed only if it is to be kept.

        Raises:
            InfrastructureError: the sandbox has ended.
        """
        at = self._cursor.at
        if at.private is None or live.observation is not None:
            return
        age = live.age()
        observation = self.recipe.environment.observe(live.sandbox)
        quiet_s = age + observation.quiet_s if observation.quiet_s else 0.0
        live.observation = replace(observation, quiet_s=quiet_s)  # as if it had been observed on arrival
        self._context.graph.note_activity(at.state, quiet_s, observation.active)
        self._cursor.at = replace(at, quiet_s=quiet_s)

    def _follow(self, edge: Edge, source: Source, began: float) -> ToolResult:
        """Moves along an edge; returns its result."""
        if edge.changed:
            self._leave_sandbox()
        self._cursor.follow(edge)
        context = self._context
        if self._own.absent:
            at = self._cursor.at
            context.companions.expect(self, at.state, stirs=at.quiet_s < math.inf)
        context.audit.answered(edge)
        seconds = time.perf_counter() - began
        context.graph.touch_hit(edge, self._task, self._transcript.answered(edge, source, seconds))
        self._calls += 1
        if _LOG.isEnabledFor(logging.DEBUG):
            self._log(edge.call, f"answered ({source}) by call {edge.id} of the graph", seconds)
        if source == "hit":
            context.meter.hit(edge.result.duration, seconds, self._calls, edge.result.cost)
            return edge.result
        context.meter.coalesced(edge.result.duration, seconds, self._calls, edge.result.cost)
        return edge.result.from_source("coalesced")

    def _tool(self, call: ToolCall) -> Tool:
        """Returns the tool that a call names, after checking the call."""
        return self.recipe.environment.tool(call)

    def _abandon(self, claim: Claim | None, *, untouched: bool) -> None:
        """Gives up a call that was not executed to its end: the next rollout that wants it executes it.

        If it was not even begun, or changed nothing (`untouched`), the sandbox is kept.
        """
        if claim is not None:
            self._context.claims.release(claim)
        if not (self._own.busy or untouched):
            self._own.drop()

    # Tools that run on the host.

    def _is_on_host(self, name: str) -> bool:
        tool = self.tools.get(name)
        return tool is not None and tool.on_host

    def _answer_on_host(self, call: ToolCall, timeout: float, began: float) -> ToolResult | None:
        """Returns the recorded answer to a call of a tool on the host, if there is one."""
        answer = self._host_calls.look_up(self.tools[call.name], call, timeout, self._cursor.at)
        return None if answer is None else self._answered_on_host(answer, began)

    def _call_on_host(
        self, call: ToolCall, timeout: float, after: float, deadline: float, cancellation: Cancellation
    ) -> ToolResult:
        """Makes a call of a tool that runs on the host: no sandbox is needed, and none changes."""
        began = time.perf_counter()
        self._catch_up()
        if self._context.use_cache:
            self._cursor.advance_time(after)
            answered = self._answer_on_host(call, timeout, began)
            if answered is not None:
                return answered
        else:
            cancellation.pause(self._cursor.missing(after))
        until = self._wait_until(timeout, deadline)
        made = self._host_calls.make(
            *(self._tool(call), call, timeout, self._cursor.at, cancellation, until), transcript=self._transcript
        )
        return self._answered_on_host(made, began)

    def _answered_on_host(self, answer: HostAnswer, began: float) -> ToolResult:
        """Counts a call of a tool on the host, and adds its duration to the rollout's time; returns its result."""
        context, result, edge = self._context, answer.result, answer.edge
        self._calls += 1
        self._cursor.end_call()
        seconds = time.perf_counter() - began
        if edge is None:
            self._cursor.at = replace(self._cursor.at, unshared=answer.unshared)
            context.meter.executed(result.duration, seconds, self._calls, None)
            return result
        self._cursor.at = replace(self._cursor.at.pass_time(result.duration), unshared=None)
        context.graph.touch_hit(edge, self._task, self._transcript.answered(edge, result.source, seconds))
        count = context.meter.hit if result.source == "hit" else context.meter.coalesced
        count(result.duration, seconds, self._calls, result.cost)
        return result

    def _leave_sandbox(self) -> None:
        """Gives the rollout's sandbox up, to others if they may have it."""
        self._uncached.close()
        self._own.leave(shared=self._context.use_cache and not self._cursor.at.private)

    # Without the cache.

    def _call_uncached(self, call: ToolCall, timeout: float, after: float, cancellation: Cancellation) -> ToolResult:
        """Executes a call in the rollout's one sandbox; looks nothing up and records nothing."""
        if self._closed:
            raise UsageError("the rollout is closed")
        began = time.perf_counter()
        tool = self._tool(call)
        live = self._uncached.live()
        cancellation.pause(self._cursor.missing(after))
        try:
            with cancellation.executing(live.sandbox):
                result = self._uncached.execute(live, tool, call, timeout)
        finally:
            self._calls += 1
            self._cursor.end_call()
        # It is not known what the call left behind: no other rollout has a state of that name.
        reached = next_state(self._cursor.at.state, call, identity=self._apart)
        self._cursor.at = Position(reached, self._cursor.at.depth + 1, recorded=False)
        self._context.meter.executed(result.duration, time.perf_counter() - began, self._calls, None)
        return result

    def fork_uncached(self, state: str) -> LiveSandbox | None:
        """Returns a fork of the sandbox of a rollout without the cache, or a fresh sandbox where `state` is its root.

        Returns:
            None if it has gone on, or is closed.

        Raises:
            StateLost: no snapshot can be taken of it, with the reason in words.
            InfrastructureError: the snapshot, or the fork of it, failed.
        """
        if state == self.root:
            return self._context.acquirer.start(state, self.recipe)
        with self._turn:
            if self._closed or self._cursor.at.state != state:
                return None
            live, waited = self._uncached.live(), self._cursor.idle
            try:
                fork = self._context.acquirer.fork_beside(live, self.recipe)
            finally:
                live.look_again(self.recipe.environment.observe)
            fork.since = time.monotonic() - waited
            return fork


def _timeout(seconds: float | None) -> float:
    """Returns a call's timeout as seconds; None stands for the longest possible one."""
    return float(LONGEST) if seconds is None else check_seconds(seconds)
