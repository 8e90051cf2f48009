"""A rollout: its calls are answered from the graph where they can be, and executed where they must be.

The flow of one call is `Rollout.call`, from top to bottom.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvsnap.acquisition.conclusion import Conclusions
from tvsnap.acquisition.context import Context
from tvsnap.acquisition.own_sandbox import OwnSandbox
from tvsnap.acquisition.recipe import Recipe
from tvsnap.acquisition.uncached import UncachedSandbox
from tvsnap.environments.files import GET, PUT, Fetched
from tvsnap.environments.terminal import exec_all_arguments, results_of
from tvsnap.environments.tools import Tool
from tvsnap.graph import Edge, RootInfo
from tvsnap.host.trees import MOST_FETCHED
from tvsnap.model.arguments import LONGEST, check_seconds, check_whole
from tvsnap.model.calls import Source, ToolCall, ToolResult, next_state
from tvsnap.model.errors import CallCancelled, InfrastructureError, SandboxDied, TvsnapError, UsageError
from tvsnap.model.observations import Command
from tvsnap.model.stats import Way
from tvsnap.recording.cancellation import Cancellation
from tvsnap.recording.claims import Claim
from tvsnap.recording.grades import Grading
from tvsnap.recording.host_calls import HostAnswer, HostCalls
from tvsnap.recording.live import LiveSandbox
from tvsnap.recording.recorder import Aftermath, Executed, Position, Recorder
from tvsnap.recording.worth import UNPROFITABLE
from tvsnap.rollout.cursor import Cursor
from tvsnap.rollout.execution import Execution
from tvsnap.rollout.file_calls import FileCalls
from tvsnap.rollout.hedge import Hedge
from tvsnap.sandboxes.protocol import Sandbox

DEFAULT_TIMEOUT = 30.0  # seconds
SPARE = 0.01  # of the time until a deadline: nobody has planned it to the hundredth
OUTSIDE = "(outside)"
"""Stands in the graph in place of a tool, for what was done in a sandbox that `Rollout.sandbox` gave out."""


class Rollout:
    """One run of an agent through one task: a cursor on the graph that has a sandbox only while it needs one.

    `Cache.rollout` and `Cache.resume` make rollouts. The calls of one rollout are made one after the other; different
    rollouts may be used by different threads at the same time. It is a context manager that closes the rollout.
    """

    def __init__(
        self,
        context: Context,
        recipe: Recipe,
        root: RootInfo,
        id: str | None,
        task: str,
        at: Position,
        deadline: float = math.inf,
    ) -> None:
        self._context = context
        self._recipe = recipe
        self._root = root.hash
        self._id = id
        self._task = task
        self._deadline = deadline  # by time.monotonic()
        self._recorder = Recorder(context.graph, context.backend.name, task, timeouts=context.shares_timeouts)
        claims = context.claims if context.use_cache else None
        self._host_calls = HostCalls(
            context.graph, claims, self._recorder, recipe.environment, recipe.limits, root.salt
        )
        self._cursor = Cursor(context, recipe, at)
        self._turn = threading.RLock()
        self._calls = 0
        self._own = OwnSandbox(context, recipe, root.hash)
        self._uncached = UncachedSandbox(context, recipe, root.hash)
        self._counts_changes = context.counts_changes(recipe.image)
        self._execution = Execution(recipe, self._own, self._cursor)
        self._conclusions = Conclusions(context, recipe, self._recorder, self._cursor.hold)
        self._files = FileCalls(context, self.tools)
        self._under_way: Cancellation | None = None
        self._closed = False

    @property
    def id(self) -> str | None:
        """The rollout's name in the graph; None if nothing is recorded (`use_cache=False`, or a full disk)."""
        return self._id

    @property
    def root(self) -> str:
        """The hash of its root, the state of a freshly started sandbox of its image."""
        return self._root

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that may be called, by name: those of the image's environment."""
        return self._recipe.environment.tools

    @property
    def file_calls(self) -> FileCalls:
        """What calls of `put` and `get` say, for the awaitable twin."""
        return self._files

    @property
    def state(self) -> str:
        """The hash of the state at which it stands. Where the last call led may have to be waited for."""
        return self._cursor.where().state

    @property
    def depth(self) -> int:
        """The number of calls that changed the state, counted from its root."""
        return self._cursor.where().depth

    @property
    def private(self) -> str | None:
        """The reason why it is in a private branch, of which nothing is shared; None if it is not."""
        return self._cursor.where().private

    @property
    def unshared(self) -> str | None:
        """The reason why the result of the last call will answer no other call; None if it may answer some."""
        return self._cursor.where().unshared

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        after: float = 0.0,
        deadline: float | None = None,
        grade: Sequence[str] | None = None,
    ) -> ToolResult:
        """Makes a tool call: answers it from the graph if that is possible, and executes it otherwise.

        A failure of the tool itself, such as an exit status other than 0 or a timeout, is a result and no exception.

        Args:
            name: the name of one of `tools`.
            arguments: the tool's arguments, as plain JSON.
            timeout: seconds that the call may take where it is executed; None for as long as it takes.
            after: seconds that are at least to have passed in the sandbox since the last call. The time that the caller
                has really let pass counts in any case; what is missing is waited for only where the call is executed.
            deadline: seconds from now on by which the caller needs the result; None for that of the rollout. The call
                waits for another rollout that makes it only as long as its timeout would still end before, or for a
                hundredth of what is left.
            grade: where the call grades what was done: the absolute paths of the files in which it leaves its grade,
                empty where its exit status is all; None for any other call. A grade answers others once it was given
                as often as `Cache(grade_executions=...)` says, and no other was.

        Returns:
            What the tool returned, now or when the same call was made in the same state before; `ToolResult.source`
            tells which.

        Raises:
            UsageError: there is no such tool, its arguments are wrong, or the rollout is closed.
            StateLost: what kept the rollout's state is gone, and nothing else leads to it. The rollout cannot go on.
            InfrastructureError: tvsnap, not the tool, failed. The rollout stands where it stood before the call, which
                may be made again.
            CallCancelled: `cancel` was called before the call was executed; likewise.
        """
        return self.call_cancellably(name, arguments, timeout, after, Cancellation(), deadline, grade)

    def call_cancellably(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None,
        after: float,
        cancellation: Cancellation,
        deadline: float | None = None,
        grade: Sequence[str] | None = None,
    ) -> ToolResult:
        """Makes a tool call that can be cancelled before its turn has come, too; see `call`.

        Args:
            name, arguments, timeout, after, deadline, grade: see `call`.
            cancellation: of this call and no other.
        """
        timeout, after = _timeout(timeout), check_seconds(after, "after", least=0.0)
        deadline = math.inf if deadline is None else check_seconds(deadline, "deadline", least=0.0)
        grading = self._grading(grade)
        call = ToolCall(name, arguments)
        try:
            with self._turn, self._context.home.in_place():
                self._under_way = cancellation
                try:
                    cancellation.check()
                    return self._make(call, timeout, after, deadline, cancellation, grading)
                finally:
                    self._under_way = None
        finally:
            cancellation.end()

    def cancel(self) -> bool:
        """Ends the call that another thread is making, and waits until it has ended.

        A command that is being executed is ended as by its timeout, and its call counts as made: `call` returns what
        it printed until then, `ToolResult.timed_out` is true, and nobody else is answered by it. A call that is not
        being executed yet was not made, and raises `CallCancelled`. A service that answers calls in the sandbox, such
        as a database's session, is begun anew.

        Returns:
            Whether a call was being made.
        """
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
        # 1. Where the last call led must be known; then what was recorded there answers without any sandbox.
        began = time.perf_counter()
        self._catch_up()
        self._cursor.let_pass(after)
        edge = self._cursor.lookup(call, timeout, grading)
        if edge is not None and self._is_answered_by(edge, call):
            return self._follow(edge, "hit", began)
        tool = self._tool(call)
        pays = self._pays(tool)
        # 2. Of all that miss this call in this state, one executes it, and the others take its result.
        able, claim, stood_at = self._is_able, None, self._cursor.at
        if not (pays or stood_at.private):
            self._cursor.stand_at(replace(stood_at, private=UNPROFITABLE))
        if grading is None or grading.executions <= 1:  # else each is executed on its own
            until, at_hand = self._wait_until(timeout, deadline), not self._own.absent
            claim = self._cursor.claim(tool, call, timeout, until, able, cancellation, at_hand=at_hand)
        if isinstance(claim, Edge):
            return self._follow(claim, "coalesced", began)
        try:
            # 3. A sandbox in this state, the cheapest there is; 4. the call in it.
            made = self._execute(tool, call, timeout, claim, cancellation, grading, looks=pays or self._counts_changes)
            if isinstance(made, Edge):
                return self._follow(made, "coalesced", began)
            live, executed, way = made
            # 5. What is left is done while the caller thinks.
            concluding = self._conclusions.begin(live, executed, exposed=self._own.exposed)
            self._cursor.lead_to(concluding.outcome)
            self._own.free_later(concluding.freed)
        except BaseException as error:
            self._abandon(claim, untouched=isinstance(error, CallCancelled))
            self._cursor.stand_at(stood_at)
            raise
        if way is not None:
            self._account_for_sandbox(executed)
        self._calls += 1
        seconds = time.perf_counter() - began
        self._context.meter.executed(executed.result.duration, seconds, self._calls, way)
        return executed.result

    def _pays(self, tool: Tool) -> bool:
        """Whether it pays to find out what a call changes that is executed now."""
        if self._cursor.at.private == UNPROFITABLE:
            return False
        return tool.read_only or self._context.worth.is_given(self._recipe.image.digest)

    def _account_for_sandbox(self, executed: Executed) -> None:
        """Takes note of what it took to get a sandbox: without the cache, only the first call needs one."""
        image = self._recipe.image.digest
        if self._calls:
            self._context.worth.add(image, reaching_s=executed.reaching_s)
        elif executed.at.state == self._root:
            self._context.worth.started(image, executed.reaching_s)

    def _is_answered_by(self, edge: Edge, call: ToolCall) -> bool:
        """Whether a call is to be answered by its record.

        Not where the cache does not pay, the rollout has a sandbox or stands where it can start one, and to execute the
        call takes less than the fork that the answer would soon make necessary.
        """
        if self._own.absent and self._cursor.at.state != self._root:
            return True
        if not edge.changed or edge.result.duration >= self._context.acquirer.fork_s:
            return True
        return self._pays(self._tool(call))

    def _execute(
        self,
        tool: Tool,
        call: ToolCall,
        timeout: float,
        claim: Claim | None,
        cancellation: Cancellation,
        grading: Grading | None,
        *,
        looks: bool,
    ) -> Edge | tuple[LiveSandbox, Executed, Way | None]:
        """Executes a call; returns what `Execution.execute` does, or the result of another rollout that was quicker."""
        if claim is None:
            return self._execution.execute(tool, call, timeout, claim, cancellation, grading, looks=looks)
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

    def _grading(self, grade: Sequence[str] | None) -> Grading | None:
        """Returns how a call grades, as `call` is told."""
        if grade is None:
            return None
        if isinstance(grade, str) or not all(isinstance(path, str) and path.startswith("/") for path in grade):
            raise UsageError(f"grade must be a list of absolute paths of files inside, not {grade!r}")
        return Grading(tuple(grade), self._context.grade_executions)

    def _is_able(self) -> bool:
        """Whether there is a sandbox of its own, or room for one."""
        return not self._own.absent or self._context.pool.has_room

    def _wait_until(self, timeout: float, deadline: float) -> float:
        """Returns when a call has to be executed so as to be done by the deadlines, by time.monotonic().

        A call whose timeout would end later may still wait for a small part of what is left: most take far less.
        """
        now = time.monotonic()
        ahead = [end for end in (self._deadline, now + deadline) if end > now]  # what is missed already is past saving
        end = min(ahead, default=math.inf)
        return max(end - timeout, now + SPARE * (end - now))

    def try_hit(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        after: float = 0.0,
        grade: Sequence[str] | None = None,
    ) -> ToolResult | None:
        """Makes a tool call if the graph has the answer, without waiting for anything.

        Args:
            name: the name of one of `tools`.
            arguments: the tool's arguments, as plain JSON.
            timeout: seconds; a recorded call that took longer is no answer. None for any.
            after: seconds that are at least to have passed since the last call, as in `call`.
            grade: where the call leaves its grade, as in `call`.

        Returns:
            The recorded result; None if the call was not made.

        Raises:
            UsageError: the arguments make no sense.
        """
        timeout, after, grading = _timeout(timeout), check_seconds(after, "after", least=0.0), self._grading(grade)
        call = ToolCall(name, arguments)
        if not self._context.use_cache or not self._turn.acquire(blocking=False):
            return None
        try:
            if self._own.exposed or self._closed or self.settling() is not None:
                return None
            began = time.perf_counter()
            self._cursor.settle()
            self._cursor.let_pass(after)
            if self._is_on_host(name):
                return self._answer_on_host(call, timeout, began)
            edge = self._cursor.lookup(call, timeout, grading, patient=False)
            if edge is None or not self._is_answered_by(edge, call):
                return None
            return self._follow(edge, "hit", began)
        finally:
            self._turn.release()

    def exec_all(
        self,
        commands: Sequence[Command | str],
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        user: str | None = None,
        after: float = 0.0,
    ) -> list[ToolResult]:
        """Runs several commands side by side, each in a fresh shell: one call, of the tool `exec_all`.

        What they return, and the state that they leave together, is recorded as a whole, and answers who makes the same
        call in the same state.

        Args:
            commands: the commands, at most 256.
            timeout: seconds that all of them may take where they are executed; None for as long as they take.
            user: the user that runs them; by default the image's.
            after: see `call`.

        Returns:
            What each command came to, in the order of the commands, as a call of `exec` returns it.

        Raises:
            UsageError, StateLost, InfrastructureError, CallCancelled: see `call`.
        """
        return results_of(self.call("exec_all", exec_all_arguments(commands, user), timeout, after=after))

    def put(
        self,
        source: str | Path | bytes,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> ToolResult:
        """Copies a file or a folder of this machine into the sandbox, as a call like any other; see `Sandbox.put`.

        The call names the content by its digest, and the data directory keeps it: an upload of what was uploaded
        before, in the same state, is answered without a sandbox.

        Args:
            source: a path of this machine, or the contents of a file as bytes.
            path: where to; a relative path starts at the shell's working directory.
            user: the user that writes it, and owns it; by default the image's.
            owners: root writes it, and it keeps its numeric owners and groups.
            mode: the permission bits of a single file; by default its own, and 0644 for bytes.
            timeout: seconds that it may take where it is executed; None for as long as it takes.

        Returns:
            The result of the call. A failure that was met in the sandbox, such as a full disk there, is one, too.

        Raises:
            UsageError: the source cannot be read, or holds more than files, folders and links; or see `call`.
            StateLost: see `call`.
            InfrastructureError: the content could not be kept; or see `call`.
        """
        return self.call(PUT, self._files.put_arguments(source, path, user=user, owners=owners, mode=mode), timeout)

    def get(
        self,
        path: str,
        destination: str | Path | None = None,
        *,
        owners: bool = False,
        limit: int = MOST_FETCHED,
        timeout: float | None = None,
    ) -> Fetched:
        """Copies a file or a folder out of the sandbox, as a call like any other; see `Sandbox.get`.

        What the call fetched is kept in the data directory: asked for again in the same state, it is answered without
        a sandbox.

        Args:
            path: the file or folder, or a link to it; a relative path starts at the shell's working directory.
            destination: what it becomes on this machine; None to be read or written by `Fetched` later.
            owners: fetch its numeric owners, too, and give them to what is written, which only root may do.
            limit: the most bytes, holes included.
            timeout: seconds that it may take where it is executed; None for as long as it takes.

        Returns:
            What was fetched.

        Raises:
            OSError: with a destination: there is no such path, or it cannot be written.
            UsageError: see `call`.
            StateLost: see `call`.
            InfrastructureError: the content could not be kept; or see `call`.
        """
        arguments = self._files.get_arguments(path, owners=owners, limit=limit)
        fetched = None
        while fetched is None:
            state = self.state
            fetched = self._files.fetched(self.call(GET, arguments, timeout), arguments, state)
        if destination is not None:
            fetched.extract(destination)
        return fetched

    def settling(self) -> Future[Position] | None:
        """Returns a future that is done once it is known where the last call led; None if that is known already."""
        return self._cursor.settling()

    def fork(self, n: int = 1) -> list[Rollout]:
        """Begins several rollouts where this one stands, live processes included; this one goes on, too.

        Args:
            n: how many.

        Returns:
            The rollouts, of the same task, each to be closed after its last call.

        Raises:
            UsageError: `n` makes no sense, the rollout is closed, or nothing is recorded (`use_cache=False`).
            StateLost: no snapshot can be taken of the state, and nothing else leads to it.
            InfrastructureError: the snapshot failed.
        """
        check_whole(n, "n", 1)
        if not self._context.use_cache:
            raise UsageError("a rollout without the cache cannot be forked: nothing of it is recorded")
        with self._turn:
            self._catch_up()
            with contextlib.ExitStack() as undo:
                state, task = self._cursor.at.state, self._task
                forks = [undo.enter_context(self._context.resume(state, task)) for _ in range(n)]
                for fork in forks:
                    fork._cursor.go_on_from(self._cursor)
                undo.pop_all()
                return forks

    def sandbox(self) -> Sandbox:
        """Returns the rollout's own sandbox in its present state, for programs that must look inside.

        The rollout goes on with this sandbox, so use it between calls only, and ask for it again after a call. What is
        done in it is not recorded; where that changes anything, the rollout goes on in a private branch. Graders had
        better use `Cache.materialise`, whose sandbox changes nothing for the rollout.

        Raises:
            StateLost: what kept the rollout's state is gone, and nothing else leads to it.
            InfrastructureError: no sandbox could be made.
        """
        with self._turn:
            if not self._context.use_cache:
                return self._uncached.live().sandbox
            self._catch_up()
            live, _ = self._own.acquire(self._cursor.at)
            if live.observation is None:
                live.observation = self._recipe.environment.observe(live.sandbox)
            live.sandbox.note()
            live.expendable = False
            self._own.exposed = True
            return live.sandbox

    def keep(self, label: str, output: str = "") -> str:
        """Records what was done in the sandbox that `sandbox` returned as one step, and takes a snapshot of the result.

        The rollout goes on from there in a private branch. The snapshot stays until `tvsnap forget` deletes it.

        Args:
            label: what was done, in words, for people.
            output: the text that is to be shown as the step's output.

        Returns:
            The hash of the state that it led to, or of the state before if nothing was changed.

        Raises:
            UsageError: no sandbox was returned by `sandbox` since the last call.
            NotCheckpointable: the step is recorded, but its state cannot be kept; the message is the reason.
            InfrastructureError: the sandbox has ended, or the snapshot failed.
        """
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
        """Snapshots the present state if a sandbox of the rollout's own stands there and no call is being made.

        Returns:
            Whether the state can be reached again for certain.

        Raises:
            InfrastructureError: the snapshot failed.
        """
        if not self._turn.acquire(blocking=False):
            return False
        try:
            self._catch_up()
            live = self._own.standing_at(self._cursor.at.state)
            if live is not None:
                with self._looking_again(live):
                    self._context.snapshotter.take(live)
            return live is not None
        finally:
            self._turn.release()

    def fork_if_idle(self, state: str) -> LiveSandbox | None:
        """Returns a fork of the rollout's own sandbox, of which no snapshot stays.

        Args:
            state: where the sandbox must stand: the rollout may have gone on meanwhile.

        Returns:
            None if no sandbox of its own stands there, or a call is being made.

        Raises:
            StateLost: no snapshot can be taken of it, with the reason in words.
            InfrastructureError: the snapshot, or the fork of it, failed.
        """
        if not self._turn.acquire(blocking=False):
            return None
        try:
            self._catch_up()
            live = self._own.standing_at(self._cursor.at.state)
            if live is None or live.state != state:
                return None
            with self._looking_again(live):
                return self._context.acquirer.fork_beside(live, self._recipe)
        finally:
            self._turn.release()

    def begin_in(self, live: LiveSandbox | None) -> None:
        """Has a rollout that has made no call go on with a sandbox that stands at its state."""
        self._own.take(live)

    def lacks_sandbox(self, state: str) -> bool:
        """Whether it stands in a state, without a sandbox of its own; for any thread, which may see it change."""
        return not self._closed and self._own.absent and self._cursor.at.state == state

    def accompany(self, state: str) -> None:
        """Makes a sandbox that runs beside the rollout in `state`, unless the rollout goes on meanwhile.

        A call that is made before it is there waits for it.

        Raises:
            InfrastructureError: none could be had.
        """
        if not self._context.pool.has_room or not self._turn.acquire(blocking=False):
            return
        try:
            if not self.lacks_sandbox(state) or not self._cursor.settled:
                return
            at, coming = self._cursor.at, self._own.await_one()
        finally:
            self._turn.release()
        self._own.make_ahead(at, coming)

    def close(self) -> None:
        """Ends the rollout. Its sandbox is left to other rollouts that come to its state.

        It may be called more than once.
        """
        if self._context.home.forked_off:
            return
        with self._turn, self._context.home.in_place():
            if self._closed:
                return
            self._closed = True
            try:
                self._cursor.settle()
            finally:
                self._leave_sandbox()
                self._cursor.let_go()
                self._context.ended(self, self._cursor.at)

    def close_if_idle(self) -> None:
        """Ends the rollout unless a call of it is being executed."""
        if self._turn.acquire(blocking=False):
            try:
                self.close()
            finally:
                self._turn.release()

    def __enter__(self) -> Rollout:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Whatever this thread is doing just now, it may hold locks: to close has to wait.
        if not getattr(self, "_closed", True):
            self._context.dropped.put(self)

    # Where it stands.

    def _catch_up(self) -> None:
        """Moves to where the last call led, and notices what was done in a sandbox that was given out."""
        if self._closed:
            raise UsageError("the rollout is closed")
        self._context.home.check()
        self._cursor.settle()
        if self._own.exposed:
            self._notice_outside()

    def _notice_outside(self, label: str | None = None, output: str = "") -> None:
        """Goes on in a private branch if a sandbox that was given out is no longer as it was."""
        live = self._own.standing_at(self._cursor.at.state)
        if live is None:
            return
        try:
            observation = self._recipe.environment.observe(live.sandbox)
        except SandboxDied:
            self._own.drop()
            return
        if observation != live.observation or not live.sandbox.go_back():
            live.sandbox.settle(changed=True)
            call = ToolCall(OUTSIDE, {"what": label} if label else {})
            reason = label or "changed from outside, in the sandbox that was given out"
            left = Aftermath(False, quiet_s=observation.quiet_s, active=observation.active)
            self._cursor.stand_at(
                self._recorder.branch_off(self._cursor.at, call, ToolResult.of_text(output, None, 0.0), reason, left)
            )
            live.state, live.observation, live.since = self._cursor.at.state, observation, self._cursor.at.since
        live.sandbox.note()  # what is done in it from here on is noticed by itself

    @contextlib.contextmanager
    def _looking_again(self, live: LiveSandbox) -> Iterator[None]:
        """A block that snapshots its sandbox between two calls, however it ends."""
        self._look_at_private(live)
        try:
            yield
        finally:
            if not self._conclusions.look_again(live):
                self._own.drop()

    def _look_at_private(self, live: LiveSandbox) -> None:
        """Finds out how time counts in a state of a private branch, which nobody looks at unless it is to be kept.

        Raises:
            InfrastructureError: the sandbox has ended.
        """
        at = self._cursor.at
        if at.private is None or live.observation is not None:
            return
        age = live.age()
        observation = self._recipe.environment.observe(live.sandbox)
        quiet_s = age + observation.quiet_s if observation.quiet_s else 0.0
        live.observation = replace(observation, quiet_s=quiet_s)  # as if it had been looked at when it came there
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
        context.graph.touch_hit(edge, self._task)
        context.audit.answered(edge)
        begins = self._calls == 0 and edge.state == self._root
        spared_s = context.acquirer.first_s(self._recipe) if begins else 0.0
        context.worth.answered(self._recipe.image.digest, edge.result.duration, spared_s=spared_s)
        self._calls += 1
        seconds = time.perf_counter() - began
        if source == "hit":
            context.meter.hit(edge.result.duration, seconds, self._calls, edge.result.cost)
            return edge.result
        context.meter.coalesced(edge.result.duration, seconds, self._calls, edge.result.cost)
        return edge.result.from_source("coalesced")

    def _tool(self, call: ToolCall) -> Tool:
        """Returns the tool that a call names, once the call is seen to be valid."""
        return self._recipe.environment.tool(call)

    def _abandon(self, claim: Claim | None, *, untouched: bool) -> None:
        """Gives up a call that was not executed to its end: the next who wants it executes it.

        Args:
            claim: the right to execute it, if there was one.
            untouched: it was not even begun, so that the sandbox is what it was.
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
            self._cursor.let_pass(after)
            answered = self._answer_on_host(call, timeout, began)
            if answered is not None:
                return answered
        else:
            cancellation.pause(self._cursor.missing(after))
        until = self._wait_until(timeout, deadline)
        made = self._host_calls.make(self._tool(call), call, timeout, self._cursor.at, cancellation, until)
        return self._answered_on_host(made, began)

    def _answered_on_host(self, answer: HostAnswer, began: float) -> ToolResult:
        """Counts a call of a tool on the host, and takes the time that it took; returns its result."""
        context, result, edge = self._context, answer.result, answer.edge
        self._calls += 1
        self._cursor.end_call()
        seconds = time.perf_counter() - began
        if edge is None:
            self._cursor.at = replace(self._cursor.at, unshared=answer.unshared)
            context.meter.executed(result.duration, seconds, self._calls, None)
            return result
        self._cursor.at = replace(self._cursor.at.pass_time(result.duration), unshared=None)
        context.graph.touch_hit(edge, self._task)
        count = context.meter.hit if result.source == "hit" else context.meter.coalesced
        count(result.duration, seconds, self._calls, result.cost)
        return result

    def _leave_sandbox(self) -> None:
        """Leaves its sandbox to others, where they may have it."""
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
        self._cursor.at = Position(next_state(self._cursor.at.state, call), self._cursor.at.depth + 1, recorded=False)
        self._context.meter.executed(result.duration, time.perf_counter() - began, self._calls, None)
        return result


def _timeout(seconds: float | None) -> float:
    """Returns a call's timeout as seconds; None is as long as there can be."""
    return float(LONGEST) if seconds is None else check_seconds(seconds)
