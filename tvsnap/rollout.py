"""A rollout: its calls are answered from the graph where they can be, and executed where they must be.

The flow of one call is `Rollout.call`, from top to bottom.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator, Mapping
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
from tvsnap.environments.tools import Tool
from tvsnap.graph import Edge, RootInfo
from tvsnap.host.trees import MOST_FETCHED, items_of
from tvsnap.model.arguments import LONGEST, check_seconds, check_whole
from tvsnap.model.calls import Source, ToolCall, ToolResult, next_state
from tvsnap.model.errors import InfrastructureError, SandboxDied, UsageError
from tvsnap.model.stats import Way
from tvsnap.recording.cancellation import Cancellation
from tvsnap.recording.claims import Claim, Wanted
from tvsnap.recording.host_calls import HostAnswer, HostCalls
from tvsnap.recording.live import LiveSandbox
from tvsnap.recording.recorder import Aftermath, Executed, Position, Recorder
from tvsnap.sandboxes.protocol import Sandbox

DEFAULT_TIMEOUT = 30.0  # seconds
OUTSIDE = "(outside)"
"""Stands in the graph in place of a tool, for what was done in a sandbox that `Rollout.sandbox` gave out."""


class Rollout:
    """One run of an agent through one task: a cursor on the graph that has a sandbox only while it needs one.

    `Cache.rollout` and `Cache.resume` make rollouts. The calls of one rollout are made one after the other; different
    rollouts may be used by different threads at the same time. It is a context manager that closes the rollout.
    """

    def __init__(
        self, context: Context, recipe: Recipe, root: RootInfo, id: str | None, task: str, at: Position
    ) -> None:
        self._context = context
        self._recipe = recipe
        self._root = root.hash
        self._id = id
        self._task = task
        self._recorder = Recorder(context.graph, context.backend.name, task, timeouts=context.shares_timeouts)
        claims = context.claims if context.use_cache else None
        self._host_calls = HostCalls(
            context.graph, claims, self._recorder, recipe.environment, recipe.limits, root.salt
        )
        self._hold = context.holds.add() if context.use_cache else None
        self._turn = threading.RLock()
        self._at = at
        if self._hold is not None:
            self._hold.stand(at.state)
        self._calls = 0
        self._ended = time.monotonic()  # the last call
        self._not_before = 0.0  # when the clock has caught up with the waits that were said
        self._outcome: Future[Position] | None = None  # of the last call, until it is taken into _at
        self._own = OwnSandbox(context, recipe, root.hash)
        self._uncached = UncachedSandbox(context, recipe, root.hash)
        self._conclusions = Conclusions(context, recipe, self._recorder, self._hold)
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
    def state(self) -> str:
        """The hash of the state at which it stands. Where the last call led may have to be waited for."""
        return self._where().state

    @property
    def depth(self) -> int:
        """The number of calls that changed the state, counted from its root."""
        return self._where().depth

    @property
    def private(self) -> str | None:
        """The reason why it is in a private branch, of which nothing is shared; None if it is not."""
        return self._where().private

    @property
    def unshared(self) -> str | None:
        """The reason why the result of the last call will answer no other call; None if it may answer some."""
        return self._where().unshared

    def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = DEFAULT_TIMEOUT, *, after: float = 0.0
    ) -> ToolResult:
        """Makes a tool call: answers it from the graph if that is possible, and executes it otherwise.

        A failure of the tool itself, such as an exit status other than 0 or a timeout, is a result and no exception.

        Args:
            name: the name of one of `tools`.
            arguments: the tool's arguments, as plain JSON.
            timeout: seconds that the call may take where it is executed; None for as long as it takes.
            after: seconds that are at least to have passed in the sandbox since the last call. The time that the caller
                has really let pass counts in any case; what is missing is waited for only where the call is executed.

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
        return self.call_cancellably(name, arguments, timeout, after, Cancellation())

    def call_cancellably(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None,
        after: float,
        cancellation: Cancellation,
    ) -> ToolResult:
        """Makes a tool call that can be cancelled before its turn has come, too; see `call`.

        Args:
            name, arguments, timeout, after: see `call`.
            cancellation: of this call and no other.
        """
        timeout, after = _timeout(timeout), check_seconds(after, "after", least=0.0)
        call = ToolCall(name, arguments)
        try:
            with self._turn, self._context.home.in_place():
                self._under_way = cancellation
                try:
                    cancellation.check()
                    return self._make(call, timeout, after, cancellation)
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

    def _make(self, call: ToolCall, timeout: float, after: float, cancellation: Cancellation) -> ToolResult:
        """Makes a call, in its turn."""
        if self._is_on_host(call.name):
            return self._call_on_host(call, timeout, after, cancellation)
        if not self._context.use_cache:
            return self._call_uncached(call, timeout, after, cancellation)
        # 1. Where the last call led must be known; then what was recorded there answers without any sandbox.
        began = time.perf_counter()
        self._catch_up()
        self._let_pass(after)
        edge = self._lookup(call, timeout)
        if edge is not None:
            return self._follow(edge, "hit", began)
        # 2. Of all that miss this call in this state, one executes it, and the others take its result.
        tool = self._tool(call)
        claim = self._claim(tool, call, timeout, cancellation)
        if isinstance(claim, Edge):
            return self._follow(claim, "coalesced", began)
        try:
            # 3. A sandbox in this state, the cheapest there is; 4. the call in it.
            live, executed, way = self._execute(tool, call, timeout, claim, cancellation)
            # 5. What is left is done while the caller thinks.
            concluding = self._conclusions.begin(live, executed, exposed=self._own.exposed)
            self._outcome = concluding.outcome
            self._own.free_later(concluding.freed)
        except BaseException:
            self._abandon(claim)
            raise
        self._calls += 1
        seconds = time.perf_counter() - began
        self._context.meter.executed(executed.result.duration, seconds, self._calls, way)
        return executed.result

    def try_hit(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = DEFAULT_TIMEOUT, *, after: float = 0.0
    ) -> ToolResult | None:
        """Makes a tool call if the graph has the answer, without waiting for anything.

        Args:
            name: the name of one of `tools`.
            arguments: the tool's arguments, as plain JSON.
            timeout: seconds; a recorded call that took longer is no answer. None for any.
            after: seconds that are at least to have passed since the last call, as in `call`.

        Returns:
            The recorded result; None if the call was not made.

        Raises:
            UsageError: the arguments make no sense.
        """
        timeout, after = _timeout(timeout), check_seconds(after, "after", least=0.0)
        call = ToolCall(name, arguments)
        if not self._context.use_cache or not self._turn.acquire(blocking=False):
            return None
        try:
            if self._own.exposed or self._closed or self.settling() is not None:
                return None
            began = time.perf_counter()
            self._settle()
            self._let_pass(after)
            if self._is_on_host(name):
                return self._answer_on_host(call, timeout, began)
            edge = self._lookup(call, timeout, patient=False)
            return None if edge is None else self._follow(edge, "hit", began)
        finally:
            self._turn.release()

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
        return self.call(PUT, self.put_arguments(source, path, user=user, owners=owners, mode=mode), timeout)

    def put_arguments(
        self,
        source: str | Path | bytes,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
    ) -> Mapping[str, Any]:
        """Keeps a content in the data directory, and returns the arguments of the call that `put` makes with it.

        Args:
            source, path, user, owners, mode: see `put`.
        """
        self._check_file_tool(PUT)
        if not isinstance(source, (str, Path, bytes)):
            raise UsageError(f"source must be a path, or bytes, not {source!r}")
        digest = self._context.contents.add(lambda: items_of(source, owners=owners, mode=mode))
        chosen: dict[str, Any] = {"user": user} if user is not None else {}
        return {"path": path, "digest": digest, **chosen, **({"owners": True} if owners else {})}

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
        arguments = self.get_arguments(path, owners=owners, limit=limit)
        fetched = None
        while fetched is None:
            state = self.state
            fetched = self.fetched(self.call(GET, arguments, timeout), arguments, state)
        if destination is not None:
            fetched.extract(destination)
        return fetched

    def get_arguments(self, path: str, *, owners: bool, limit: int) -> Mapping[str, Any]:
        """Returns the arguments of the call that `get` makes; those that are as usual are left out.

        Args:
            path, owners, limit: see `get`.
        """
        self._check_file_tool(GET)
        check_whole(limit, "limit", 0)
        chosen = {"owners": True} if owners else {}
        return {"path": path, **chosen, **({"limit": limit} if limit != MOST_FETCHED else {})}

    def fetched(self, result: ToolResult, arguments: Mapping[str, Any], state: str) -> Fetched | None:
        """Returns what a call of `get` that was just made has fetched; None if that is gone: make it again then.

        Args:
            result: of the call.
            arguments: of the call.
            state: where it was made.
        """
        fetched = Fetched(result, str(arguments["path"]), self._context.contents, owners=bool(arguments.get("owners")))
        if fetched.digest is None or self._context.contents.has(fetched.digest):
            return fetched
        edge = self._context.graph.recorded(state, ToolCall(GET, arguments)) if result.source != "executed" else None
        if edge is None:
            raise InfrastructureError(f"what was fetched from {arguments['path']} is gone from the data directory")
        self._context.graph.retire(edge, "what it fetched is gone from the data directory")
        return None

    def settling(self) -> Future[Position] | None:
        """Returns a future that is done once it is known where the last call led; None if that is known already."""
        outcome = self._outcome
        return None if outcome is None or outcome.done() else outcome

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
                state, task = self._at.state, self._task
                forks = [undo.enter_context(self._context.resume(state, task)) for _ in range(n)]
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
            live, _ = self._own.acquire(self._at)
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
            before = self._at
            self._notice_outside(label, output)
            if self._own.live is None:
                raise InfrastructureError("the sandbox has ended: what was done in it is lost")
            if self._at != before:
                with self._looking_again(live):
                    self._context.snapshotter.take(live, pinned=True)
            return self._at.state

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
            live = self._own.standing_at(self._at.state)
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
            live = self._own.standing_at(self._at.state)
            if live is None or live.state != state:
                return None
            with self._looking_again(live):
                return self._context.acquirer.fork_beside(live, self._recipe)
        finally:
            self._turn.release()

    def begin_in(self, live: LiveSandbox | None) -> None:
        """Has a rollout that has made no call go on with a sandbox that stands at its state."""
        self._own.take(live)

    def accompany(self, state: str) -> None:
        """Forks a sandbox that runs beside the rollout in `state`, unless the rollout goes on meanwhile.

        Raises:
            InfrastructureError: none could be had.
        """
        if self._closed or self._at.state != state or self._context.pool.full:
            return
        live = self._context.acquirer.acquire(state, self._recipe).live
        try:
            live.observation = self._recipe.environment.observe(live.sandbox)
        except BaseException:
            self._context.pool.discard(live)
            raise
        taken = False
        if self._turn.acquire(blocking=False):
            try:
                idle = self._own.absent and self._outcome is None
                taken = idle and not self._closed and self._at.state == state
                if taken:
                    self._own.take(live)
            finally:
                self._turn.release()
        if taken:
            self._context.pool.rest(live)
        else:
            self._context.pool.discard(live)

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
                self._settle()
            finally:
                self._leave_sandbox()
                if self._hold is not None:
                    self._context.holds.remove(self._hold)
                    self._hold = None
                self._context.ended(self, self._at)

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

    def _where(self) -> Position:
        """Returns where it stands, once the last call's outcome is known; for any thread."""
        outcome = self._outcome
        if outcome is None:
            return self._at
        self._context.home.check()
        return outcome.result()

    def _settle(self) -> None:
        """Moves to where the last call led, once that is known."""
        if self._outcome is not None:
            self._stand_at(self._outcome.result())
            self._outcome = None

    def _catch_up(self) -> None:
        """Moves to where the last call led, and notices what was done in a sandbox that was given out."""
        if self._closed:
            raise UsageError("the rollout is closed")
        self._context.home.check()
        self._settle()
        if self._own.exposed:
            self._notice_outside()

    def _notice_outside(self, label: str | None = None, output: str = "") -> None:
        """Goes on in a private branch if a sandbox that was given out is no longer as it was."""
        live = self._own.standing_at(self._at.state)
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
            self._stand_at(
                self._recorder.branch_off(self._at, call, ToolResult.of_text(output, None, 0.0), reason, left)
            )
            live.state, live.observation, live.since = self._at.state, observation, self._at.since

    @contextlib.contextmanager
    def _looking_again(self, live: LiveSandbox) -> Iterator[None]:
        """A block that snapshots its sandbox between two calls, however it ends."""
        try:
            yield
        finally:
            if not self._conclusions.look_again(live):
                self._own.drop()

    def _stand_at(self, at: Position) -> None:
        """Takes its place at a state."""
        self._at = at
        if self._hold is not None:
            self._hold.stand(at.state)

    def _let_pass(self, after: float) -> None:
        """Sees to it that so many seconds have passed since the last call."""
        now = time.monotonic()
        missing = after - (now - self._ended)
        if missing > 0:
            self._at = self._at.pass_time(missing)
            self._ended -= missing
            self._not_before = max(self._not_before, now) + missing

    def _make_up_time(self, live: LiveSandbox) -> None:
        """Waits until the sandbox, and the clock that programs read, are where the rollout is."""
        missing = max(0.0, self._not_before - time.monotonic())
        live.let_run(max(self._at.waited, live.age() + missing))
        self._not_before = 0.0

    # Answering from the graph.

    def _lookup(self, call: ToolCall, timeout: float, *, patient: bool = True) -> Edge | None:
        """Returns the recorded answer to a call, if there is one that may be given; the state it leads to is held then.

        Args:
            call, timeout: see `call`.
            patient: wait for an eviction that is under way; else there is no answer.
        """
        at, holds = self._at, self._context.holds
        if at.private:
            return None
        evictions = holds.evictions
        edge = self._look_up(call, timeout, retire=patient)
        if edge is None or not edge.changed or self._hold is None:
            return edge
        self._hold.approach(edge.next_state)
        if evictions % 2 == 0 and holds.evictions == evictions:
            return edge
        if patient:
            holds.wait_for_evictions()
            again = self._look_up(call, timeout)
            if again is not None and again.id == edge.id:
                return again
        self._hold.stand(at.state)
        return None

    def _look_up(self, call: ToolCall, timeout: float, *, retire: bool = True) -> Edge | None:
        at, graph = self._at, self._context.graph
        backend = self._context.backend.name
        edge = graph.lookup(at.state, call, timeout, backend, waited=at.waited, quiet_s=at.quiet_s)
        if edge is None or not edge.asked:
            return edge
        tool = self.tools.get(call.name)
        lasts, age = self._context.network_answers if tool is None else self._lasts(tool), time.time() - edge.created
        if lasts is None or age <= lasts:
            return edge
        if retire:  # an event loop that looks must not wait for a writer
            graph.retire(edge, f"what it asked of the network was {age:.0f} s old")
        return None

    def _lasts(self, tool: Tool) -> float | None:
        """Returns the seconds for which what a tool's call asked of the network answers others; None for ever."""
        return self._context.network_answers if tool.time_to_live is None else tool.time_to_live

    def _follow(self, edge: Edge, source: Source, began: float) -> ToolResult:
        """Moves along an edge; returns its result."""
        at, now = self._at, time.monotonic()
        if edge.changed:
            self._leave_sandbox()
            course = at.course_after(edge.call)
            self._not_before -= max(0.0, time.time() - edge.created)  # so long ago was the state made
            self._stand_at(Position(edge.next_state, at.depth + 1, quiet_s=edge.quiet_s, since=now, course=course))
        elif at.quiet_s < math.inf:
            # It has waited as long as the one whose answer it is given, and for the call's own time.
            self._at = replace(at, unshared=None, since=min(at.since, now - edge.waited) - edge.result.duration)
        elif at.unshared:
            self._at = replace(at, unshared=None)
        self._ended = now
        context = self._context
        if self._at.quiet_s < math.inf and self._own.absent:
            context.companions.expect(self, self._at.state)
        context.graph.touch_hit(edge, self._task)
        context.audit.answered(edge)
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

    def _claim(self, tool: Tool, call: ToolCall, timeout: float, cancellation: Cancellation) -> Edge | Claim | None:
        """Returns someone else's result, or the right to execute the call; None where nothing is to be shared."""
        at = self._at
        if at.private or tool.stochastic or not tool.cacheable:
            return None
        wanted = Wanted(at.state, call, timeout, self._context.backend.name, at.waited, at.quiet_s)
        return self._context.claims.claim(wanted, lambda: self._lookup(call, timeout), cancellation)

    def _abandon(self, claim: Claim | None) -> None:
        """Gives up a call that was not executed to its end: the next who wants it executes it."""
        if claim is not None:
            self._context.claims.release(claim)
        if not self._own.busy:
            self._own.drop()

    # Tools that run on the host.

    def _is_on_host(self, name: str) -> bool:
        tool = self.tools.get(name)
        return tool is not None and tool.on_host

    def _answer_on_host(self, call: ToolCall, timeout: float, began: float) -> ToolResult | None:
        """Returns the recorded answer to a call of a tool on the host, if there is one."""
        answer = self._host_calls.look_up(self.tools[call.name], call, timeout, self._at)
        return None if answer is None else self._answered_on_host(answer, began)

    def _call_on_host(self, call: ToolCall, timeout: float, after: float, cancellation: Cancellation) -> ToolResult:
        """Makes a call of a tool that runs on the host: no sandbox is needed, and none changes."""
        began = time.perf_counter()
        self._catch_up()
        if self._context.use_cache:
            self._let_pass(after)
            answered = self._answer_on_host(call, timeout, began)
            if answered is not None:
                return answered
        else:
            time.sleep(max(0.0, after - (time.monotonic() - self._ended)))
        made = self._host_calls.make(self._tool(call), call, timeout, self._at, cancellation)
        return self._answered_on_host(made, began)

    def _answered_on_host(self, answer: HostAnswer, began: float) -> ToolResult:
        """Counts a call of a tool on the host, and takes the time that it took; returns its result."""
        context, result, edge = self._context, answer.result, answer.edge
        self._calls += 1
        self._ended = time.monotonic()
        seconds = time.perf_counter() - began
        if edge is None:
            self._at = replace(self._at, unshared=answer.unshared)
            context.meter.executed(result.duration, seconds, self._calls, None)
            return result
        self._at = replace(self._at.pass_time(result.duration), unshared=None)
        context.graph.touch_hit(edge, self._task)
        count = context.meter.hit if result.source == "hit" else context.meter.coalesced
        count(result.duration, seconds, self._calls, result.cost)
        return result

    def _check_file_tool(self, name: str) -> None:
        if name in self.tools:
            raise UsageError(f"the environment has a tool of its own that is called {name}; use it, or Rollout.sandbox")

    # Sandboxes.

    def _execute(
        self, tool: Tool, call: ToolCall, timeout: float, claim: Claim | None, cancellation: Cancellation
    ) -> tuple[LiveSandbox, Executed, Way | None]:
        """Executes a call in a sandbox in the present state; if the sandbox dies over it, once more in another."""
        try:
            return self._attempt(tool, call, timeout, claim, cancellation)
        except SandboxDied:
            self._own.drop()
        cancellation.check()
        try:
            return self._attempt(tool, call, timeout, claim, cancellation)
        except SandboxDied as death:
            self._own.drop()
            raise InfrastructureError(
                f"the sandbox died twice over {call.brief} ({death}); give it more memory, or see what it does"
            ) from death

    def _attempt(
        self, tool: Tool, call: ToolCall, timeout: float, claim: Claim | None, cancellation: Cancellation
    ) -> tuple[LiveSandbox, Executed, Way | None]:
        live, way = self._own.acquire(self._at)
        at = self._at
        # Where something runs by itself or may wake, how it looked at first is what the outcome is compared with.
        if live.observation is None and not (tool.read_only and live.alone and at.quiet_s == math.inf):
            live.observation = self._recipe.environment.observe(live.sandbox)
        self._make_up_time(live)
        if not tool.read_only:
            live.sandbox.note()
        if claim is not None:
            claim.begin()
        # Looked for before, too: a disk that was full may have room again when the call ends.
        trouble = live.sandbox.trouble("")
        age = live.age()
        with cancellation.executing(live.sandbox):
            result = self._recipe.environment.execute(live.sandbox, call, timeout, self._recipe.limits)
        self._ended = ended = time.monotonic()
        trouble = live.sandbox.trouble(result.output) or trouble
        asked = live.sandbox.traffic().asked if self._recipe.image.network.attached else ()
        before, cancelled, lasts = live.observation, cancellation.wanted, self._lasts(tool)
        executed = Executed(
            tool, call, timeout, result, at, before, claim, trouble, age, ended, cancelled, asked, lasts
        )
        return live, executed, way

    def _leave_sandbox(self) -> None:
        """Leaves its sandbox to others, where they may have it."""
        self._uncached.close()
        self._own.leave(shared=self._context.use_cache and not self._at.private)

    # Without the cache.

    def _call_uncached(self, call: ToolCall, timeout: float, after: float, cancellation: Cancellation) -> ToolResult:
        """Executes a call in the rollout's one sandbox; looks nothing up and records nothing."""
        if self._closed:
            raise UsageError("the rollout is closed")
        began = time.perf_counter()
        tool = self._tool(call)
        live = self._uncached.live()
        time.sleep(max(0.0, after - (time.monotonic() - self._ended)))
        try:
            with cancellation.executing(live.sandbox):
                result = self._uncached.execute(live, tool, call, timeout)
        finally:
            self._calls += 1
            self._ended = time.monotonic()
        self._at = Position(next_state(self._at.state, call), self._at.depth + 1, recorded=False)
        self._context.meter.executed(result.duration, time.perf_counter() - began, self._calls, None)
        return result


def _timeout(seconds: float | None) -> float:
    """Returns a call's timeout as seconds; None is as long as there can be."""
    return float(LONGEST) if seconds is None else check_seconds(seconds)
