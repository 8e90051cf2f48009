"""OpenEnv's environment on tvsnap: `create_app(environment, TerminalAction, TerminalObservation)`.

Each session of the server is one rollout: `reset` begins one, a step is one command.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from tvsnap.aio.threads import in_thread
from tvsnap.model.errors import UsageError
from tvsnap.plugins.harnesses.attempts import COLUMN, THREADS, Attempt, Setting

try:
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"tvsnap.integrations.openenv needs openenv-core, of which {error.name} is missing: pip install openenv-core",
        name=error.name,
    ) from error


class TerminalAction(Action):
    """A command; or none, when the agent is done."""

    command: str | None = None
    """The bash command; without one, the attempt ends and is graded."""


class TerminalObservation(Observation):
    """The output of a command."""

    output: str = ""
    """The output, cut in the middle if it is long, and the exit status if that is not 0."""


class TerminalState(State):
    """The progress of an attempt."""

    state: str | None = None
    """The hash of the state in tvsnap's graph, where `tvsnap shell` opens a fork."""
    sources: dict[str, int] = Field(default_factory=dict)
    """The number of calls by their source."""


class TerminalEnvironment(Environment[TerminalAction, TerminalObservation, TerminalState]):
    """An environment whose commands run in tvsnap's sandboxes, or are answered from its graph."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, setting: Setting, task: dict[str, Any] | str | None) -> None:
        """
        Args:
            setting: the cache, and what the agent is shown.
            task: a value of the column `tvsnap`, see `tvsnap.integrations.attempts.Assignment.of`, for resets without.
        """
        super().__init__()
        self._setting, self._task = setting, task
        self._attempt: Attempt | None = None
        self._state = TerminalState()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> TerminalObservation:
        """Begins an attempt; the one before is ended.

        Args:
            seed: ignored.
            episode_id: the name of the attempt; by default one is made up.
            kwargs: `tvsnap`, the task; by default that of the environment.

        Raises:
            UsageError: they say no task.
        """
        attempt = self._setting.attempt({COLUMN: self._task, **kwargs})
        self.close()
        self._attempt = attempt
        self._state = TerminalState(episode_id=episode_id or uuid.uuid4().hex)
        return TerminalObservation()

    def step(self, action: TerminalAction, timeout_s: float | None = None, **kwargs: Any) -> TerminalObservation:
        """Runs a command, or ends the attempt, with its reward.

        Args:
            action: the command; without one, the attempt is over.
            timeout_s: ignored: a command has the environment's timeout, as answers depend on it.
            kwargs: ignored.

        Raises:
            UsageError: no attempt has begun.
            TvsnapError: tvsnap or the verifier failed, so that there is no observation.
        """
        attempt = self._attempt
        if attempt is None:
            raise UsageError("no attempt has begun: call reset first")
        if action.command is None:
            graded = attempt.assignment.verifier is not None
            return TerminalObservation(done=True, reward=attempt.reward() if graded else None)
        self._state.step_count += 1
        return TerminalObservation(output=attempt.bash(action.command))

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> TerminalObservation:
        """Does what `reset` does, in a thread."""
        return await in_thread(THREADS, partial(self.reset, seed, episode_id, **kwargs))

    async def step_async(
        self, action: TerminalAction, timeout_s: float | None = None, **kwargs: Any
    ) -> TerminalObservation:
        """Does what `step` does, in a thread."""
        return await in_thread(THREADS, partial(self.step, action, timeout_s, **kwargs))

    @property
    def state(self) -> TerminalState:
        """The progress of the attempt."""
        attempt = self._attempt
        if attempt is not None:
            self._state.state, self._state.sources = attempt.state, dict(attempt.sources)
        return self._state

    def close(self) -> None:
        """Ends the rollout. It may be called again."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.close()


def environment_factory(
    home: Path | str | None = None,
    *,
    url: str | None = None,
    task: dict[str, Any] | str | None = None,
    **settings: Any,
) -> Callable[[], TerminalEnvironment]:
    """Returns what OpenEnv's `create_app` takes as its environment.

    Args:
        home: the data directory; by default the usual one, or the server in `TVSNAP_URL`.
        url: the address of a server, in place of a data directory; see `tvsnap.connect`.
        task: a value of the column `tvsnap`, see `tvsnap.integrations.attempts.Assignment.of`; a reset may replace it.
        settings: `token`, `timeout` (seconds that a command may take), `shown` (characters of an output that the agent
            is shown), and `backend`, `policy`, `use_cache`, `timeouts` and `grade_executions`, as in `tvsnap.Cache`.

    Raises:
        UsageError: there is both a data directory and a server, or a setting makes no sense.
    """
    setting = Setting.of({"home": home, "url": url, **settings})
    return lambda: TerminalEnvironment(setting, task)
