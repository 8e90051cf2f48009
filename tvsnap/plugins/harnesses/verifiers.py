"""Tasks of PrimeIntellect's verifiers (`verifiers.v1`) on tvsnap: a tool `bash`, and a reward by the task's verifier.

verifiers runs tools in a process of their own, which makes the calls. Where the rollout stands is handed over in the
state that verifiers shares between that process and the trainer's, in which it is graded.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from typing import Any

from pydantic import Field, SerializeAsAny

from tvsnap.aio.threads import in_thread
from tvsnap.model.errors import InfrastructureError, TvsnapError
from tvsnap.plugins.harnesses.attempts import COMMAND, THREADS, Setting
from tvsnap.plugins.harnesses.caches import process_cache

try:
    import verifiers.v1 as vf
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"tvsnap.integrations.verifiers needs verifiers 0.4, of which {error.name} is missing: pip install verifiers",
        name=error.name,
    ) from error


class TerminalState(vf.State):
    """The progress of a rollout.

    Attributes:
        node: the state of tvsnap after the last command; None before the first.
        since: when it came there, in seconds since 1970.
        failure: the error of tvsnap that ended it, if one did.
    """

    node: str | None = None
    since: float = 0.0
    failure: str | None = None


class TerminalData(vf.TaskData):
    """A row of a data set.

    Attributes:
        tvsnap: the task as JSON, see `tvsnap.integrations.attempts.Assignment.of`.
    """

    tvsnap: str


class TerminalConfig(vf.TaskConfig):
    """Settings of all tasks of a set.

    Attributes:
        settings: see `tvsnap.integrations.attempts.Setting.of`.
    """

    settings: dict[str, Any] = Field(default_factory=dict)


class TerminalTasksetConfig(vf.TasksetConfig):
    """The configuration of a set of tasks, from which verifiers takes that of its tasks.

    Attributes:
        task: the settings that they share.
    """

    task: SerializeAsAny[TerminalConfig] = Field(default_factory=TerminalConfig)


class TerminalToolsConfig(vf.ToolsetConfig):
    """The settings of the process of a rollout's tool; see `TerminalConfig`."""

    settings: dict[str, Any] = Field(default_factory=dict)


class TerminalTools(vf.Toolset[TerminalToolsConfig, TerminalState]):
    """The tool `bash`, in a process for each rollout, on the host."""

    TOOL_PREFIX = None

    async def setup_task(self, task: TerminalData) -> None:
        """Begins an attempt at a task."""
        self._order = asyncio.Lock()
        self._attempt = Setting.of(self.config.settings).attempt({"tvsnap": task.tvsnap})
        self._exit_stack.callback(self._attempt.close)

    async def bash(self, command: str) -> str:
        try:
            return await self._attempt.bash_aside(command)
        except TvsnapError as error:
            self.state.failure = str(error)
            return "[the sandbox failed]"
        finally:
            if self.state.node != self._attempt.state:
                self.state.node, self.state.since = self._attempt.state, time.time()

    bash.__doc__ = f"Runs a bash command. {COMMAND}"
    bash = vf.tool(bash)

    def _with_state(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Has calls made one after the other, as of states that are pushed side by side the last one counts."""
        synced = super()._with_state(fn)

        @functools.wraps(synced)
        async def ordered(*args: Any, **kwargs: Any) -> Any:
            async with self._order:
                return await synced(*args, **kwargs)

        return ordered


class TerminalTask(vf.Task[TerminalData, TerminalState, TerminalConfig]):
    """A task whose commands run in tvsnap's sandboxes, or are answered from its graph."""

    @classmethod
    def toolsets(cls, config: TerminalConfig) -> list[vf.Toolset]:
        """Returns the tool `bash`."""
        return [TerminalTools(TerminalToolsConfig(settings=config.settings))]

    @vf.reward
    async def solved(self, trace: vf.Trace) -> float:
        """Returns what the task's verifier finds.

        Raises:
            TvsnapError: there is no reward, as tvsnap or the verifier failed.
        """
        return await in_thread(THREADS, functools.partial(self._reward, trace.state))

    def _reward(self, state: TerminalState) -> float:
        if state.failure is not None:
            raise InfrastructureError(f"tvsnap failed in this rollout, so that it has no reward: {state.failure}")
        setting = Setting.of(self.config.settings)
        attempt = setting.attempt({"tvsnap": self.data.tvsnap})
        if state.node is None or attempt.assignment.verifier is None:  # which begins, or says what is missing
            try:
                return attempt.reward()
            finally:
                attempt.close()
        after = max(0.0, time.time() - state.since)
        with process_cache(setting.options).resume(state.node, attempt.assignment.task, after=after) as rollout:
            return float(rollout.grade(attempt.assignment.verifier).reward)


if __name__ == "__main__":
    TerminalTools.run()
