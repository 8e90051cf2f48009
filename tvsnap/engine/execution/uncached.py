"""The one sandbox of a rollout without the cache, in which every call is executed: for comparison.

It is not observed, as nobody depends on its states: a rollout costs only its sandbox and its calls. So it is not known
which calls changed something; the ids of processes, which depend on that with the cache, depend on the number of calls
here. Where a comparison has to be exact to the process id (`Cache(same_ids=True)`), or where random numbers depend on
process ids because the image has a seed, the sandbox is observed after each call.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import Future

from tvsnap.engine.context import Context
from tvsnap.engine.execution.executed import TOOL_ERRORS
from tvsnap.engine.live import LiveSandbox
from tvsnap.engine.supply.recipe import Recipe
from tvsnap.environments.tools import Tool
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import InfrastructureError


class UncachedSandbox:
    """The sandbox, which is started at the first call that needs it. Used by one thread at a time."""

    def __init__(self, context: Context, recipe: Recipe, root: str) -> None:
        """`root` is the state that the sandbox starts at."""
        self._context = context
        self._recipe = recipe
        self._root = root
        self._looks = context.counts_changes(recipe.image)
        self._started = False
        self._live: LiveSandbox | None = None
        self._noted: Future[None] | None = None  # whether the last call changed anything

    def live(self) -> LiveSandbox:
        """Returns the sandbox, once the last call is completely done in it.

        Raises:
            InfrastructureError: it could not be started, or has ended.
        """
        if self._live is None:
            if self._started:
                raise InfrastructureError("the rollout's sandbox is gone, and without the cache nothing can rebuild it")
            self._live = self._context.acquirer.start(self._root, self._recipe)
            self._started = True
            if self._looks:
                self._live.observation = self._recipe.environment.observe(self._live.sandbox)
        if self._noted is not None:
            self._noted.result()
            self._noted = None
        return self._live

    def execute(self, live: LiveSandbox, tool: Tool, call: ToolCall, timeout: float) -> ToolResult:
        """Executes a call in the sandbox that `live` returned.

        Raises:
            DependencyFailed, UsageError: what the tool asks failed; the sandbox lives on if the tool is read-only.
            InfrastructureError: the sandbox failed, and has been ended.
        """
        try:
            if self._looks and not self._recipe.environment.surely_changes(call, live.observation):
                live.sandbox.note()
            result = self._recipe.environment.execute(live.sandbox, call, timeout, self._recipe.limits)
        except TOOL_ERRORS:
            if tool.read_only:
                live.sandbox.settle(changed=False)
            else:
                self.close()
            raise
        except BaseException:
            self.close()
            raise
        if not self._looks:
            live.sandbox.settle(changed=not tool.read_only)
            return result
        with contextlib.suppress(RuntimeError):  # the cache is being closed
            self._noted = self._context.workers.submit(self._note, live, tool, call)
        return result

    def close(self) -> None:
        """Ends it; safe to repeat."""
        live, self._live = self._live, None
        if live is not None:
            self._context.pool.discard(live)

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
