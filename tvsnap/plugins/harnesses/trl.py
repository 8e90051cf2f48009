"""TRL's environments on tvsnap: `GRPOTrainer(..., environment_factory=environment_factory())`.

Each example of the data set says its task in the column `tvsnap`, see `tvsnap.integrations.attempts.Assignment.of`. The
model has one tool, `bash`; the reward is that of the verifier. This needs nothing of TRL itself, which asks for a class
of this shape.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tvsnap.aio.threads import in_thread
from tvsnap.model.errors import UsageError
from tvsnap.plugins.harnesses.attempts import THREADS, Attempt, Setting


class TerminalEnvironment:
    """An environment whose commands run in tvsnap's sandboxes, or are answered from its graph.

    TRL takes each public method for a tool, except `reset` and `get_reward`.
    """

    def __init__(self, setting: Setting) -> None:
        """
        Args:
            setting: the cache, and what the model is shown.
        """
        self._setting = setting
        self._attempt: Attempt | None = None

    def reset(self, **example: Any) -> None:
        """Begins with another example; the rollout of the last one is ended.

        Args:
            example: the columns of the example.

        Raises:
            UsageError: the columns say no task.
        """
        if self._attempt is not None:
            self._attempt.close()
        self._attempt = self._setting.attempt(example)

    async def bash(self, command: str) -> str:
        """Runs a bash command in a shell that is kept: the directory and variables last.

        Args:
            command: The bash command.

        Returns:
            What it printed, and its exit status if that is not 0.
        """
        return await self._current().bash_aside(command)

    async def get_reward(self) -> float:
        """Returns what the verifier of the example finds.

        Raises:
            TvsnapError: there is no reward, as tvsnap or the verifier failed. Training must not go on as if it were 0.
        """
        return await in_thread(THREADS, self._current().reward)

    def _current(self) -> Attempt:
        if self._attempt is None:
            raise UsageError("the environment has no example yet: call reset first")
        return self._attempt

    def __del__(self) -> None:
        attempt = self.__dict__.get("_attempt")
        if attempt is not None:
            with contextlib.suppress(Exception):  # at the interpreter's end, the cache may be closed
                attempt.close()


def environment_factory(
    home: Path | str | None = None, *, url: str | None = None, **settings: Any
) -> Callable[[], TerminalEnvironment]:
    """Returns what TRL's `GRPOTrainer` takes as `environment_factory`.

    Args:
        home: the data directory; by default the usual one, or the server in `TVSNAP_URL`.
        url: the address of a server, in place of a data directory; see `tvsnap.connect`.
        settings: `token`, `timeout` (seconds that a command may take), `shown` (characters of an output that the model
            is shown), and `backend`, `policy`, `use_cache`, `timeouts` and `grade_executions`, as in `tvsnap.Cache`.

    Raises:
        UsageError: there is both a data directory and a server, or a setting makes no sense.
    """
    setting = Setting.of({"home": home, "url": url, **settings})
    return lambda: TerminalEnvironment(setting)
