"""The one sandbox of a rollout without the cache, in which every call is executed: for comparison.

It is not observed, because nobody depends on its states: a rollout costs only its sandbox and its calls. So it is not
known which calls changed something; with the cache the ids of processes depend on that, here they depend on the number
of calls. If a comparison has to be exact to the process id (`Cache(same_ids=True)`), or if random numbers depend on
process ids because the image has a seed, the sandbox is observed after each call.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from concurrent.futures import Future

from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.events import CallEvents
from tvsnap.engine.execution.execution import TOOL_ERRORS
from tvsnap.engine.live_sandbox import LiveSandbox
from tvsnap.engine.lookup.cursor import Cursor
from tvsnap.engine.position import Position
from tvsnap.engine.services import Services
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.environments.tools import Tool
from tvsnap.model.calls import ToolCall, ToolResult, next_state
from tvsnap.model.errors import InfrastructureError, UsageError


class UncachedCalls:
    """Executes calls in the sandbox, which is started for the first one that needs it. Used by one thread at a time."""

    def __init__(self, services: Services, recipe: Recipe, root: str, cursor: Cursor, events: CallEvents) -> None:
        """`root` is the state of the fresh sandbox."""
        self._services = services
        self._recipe = recipe
        self._root = root
        self._cursor = cursor
        self._events = events
        self._apart = secrets.token_hex(16)
        self._looks = services.counts_changes(recipe.image)
        self._started = self._closed = False
        self._live: LiveSandbox | None = None
        self._noted: Future[None] | None = None  # whether the last call changed anything

    def live(self) -> LiveSandbox:
        """Returns the sandbox, once the last call is completely done in it.

        Raises:
            UsageError: the rollout is closed.
            InfrastructureError: it could not be started, or has ended.
        """
        if self._closed:
            raise UsageError("the rollout is closed")
        if self._live is None:
            if self._started:
                raise InfrastructureError("the rollout's sandbox is gone, and without the cache nothing can rebuild it")
            self._live = self._services.acquirer.start(self._root, self._recipe)
            self._started = True
            if self._looks:
                self._live.observation = self._recipe.environment.observe(self._live.sandbox)
        if self._noted is not None:
            self._noted.result()
            self._noted = None
        return self._live

    def call(self, tool: Tool, call: ToolCall, timeout: float, after: float, cancellation: Cancellation) -> ToolResult:
        """Executes a call, once `after` seconds have passed since the last one; nothing is looked up or recorded.

        Raises:
            DependencyFailed, UsageError: a service that the tool needs failed; the sandbox lives on if the tool is
                read-only.
            InfrastructureError: the sandbox failed, and has been ended.
            CallCancelled: the call was cancelled before it was executed.
        """
        began, cursor = time.perf_counter(), self._cursor
        live = self.live()
        cancellation.pause(cursor.missing(after))
        try:
            with cancellation.executing(live.sandbox):
                result = self._execute(live, tool, call, timeout)
        finally:
            cursor.end_call()
        # The call's aftermath is unknown: no other rollout has a state of that name.
        reached = next_state(cursor.at.state, call, identity=self._apart)
        cursor.at = Position(reached, cursor.at.depth + 1, recorded=False)
        self._events.executed(call, result, time.perf_counter() - began)
        return result

    def fork(self) -> LiveSandbox:
        """Returns a fork of the sandbox as it is between two calls.

        Raises:
            StateLost: no snapshot can be taken of it, with the reason in words.
            InfrastructureError: the snapshot, or the fork of it, failed.
        """
        live, waited = self.live(), self._cursor.idle
        try:
            [fork] = self._services.acquirer.fork_beside(live, self._recipe)
        finally:
            live.look_again(self._recipe.environment.observe)
        fork.since = time.monotonic() - waited
        return fork

    def close(self) -> None:
        """Ends the sandbox with its rollout; safe to repeat."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            self._services.pool.discard(live)

    def _execute(self, live: LiveSandbox, tool: Tool, call: ToolCall, timeout: float) -> ToolResult:
        """Executes a call; ends the sandbox if that fails, unless the call surely changed nothing."""
        try:
            if self._looks and not self._recipe.environment.surely_changes(call, live.observation):
                live.sandbox.note()
            result = self._recipe.environment.execute(live.sandbox, call, timeout, self._recipe.limits)
        except TOOL_ERRORS:
            if tool.read_only:
                live.sandbox.settle(changed=False)
            else:
                self._end()
            raise
        except BaseException:
            self._end()
            raise
        if not self._looks:
            live.sandbox.settle(changed=not tool.read_only)
            return result
        with contextlib.suppress(RuntimeError):  # the cache is being closed
            self._noted = self._services.workers.submit(self._note, live, tool, call)
        return result

    def _note(self, live: LiveSandbox, tool: Tool, call: ToolCall) -> None:
        """Tells the sandbox whether a call changed anything, so that process ids are those of a run with the cache."""
        before = live.observation
        if before is None or (tool.read_only and before.alone):
            return
        with contextlib.suppress(InfrastructureError):  # the next call raises it
            live.observation = self._recipe.environment.observe(live.sandbox)
            unchanged = self._recipe.environment.unchanged(call, before, live.observation)
            live.sandbox.settle(changed=not (unchanged and live.sandbox.go_back()))
            live.sandbox.note()
