"""SkyRL's environment on tvsnap: `skyrl_gym.register("tvsnap", "tvsnap.integrations.skyrl:TerminalEnv")`.

The model writes a command between `<bash>` and `</bash>`, and answers without one when it is done. Each row of the data
set says its task in the column `tvsnap`, or in `extra_info` under that name, see
`tvsnap.integrations.attempts.Assignment.of`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tvsnap.model.arguments import check_whole
from tvsnap.plugins.harnesses.attempts import COLUMN, Setting, plain

try:
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"tvsnap.integrations.skyrl needs skyrl-gym, of which {error.name} is missing: pip install skyrl-gym",
        name=error.name,
    ) from error

TURNS = 8
"""The most commands of an attempt whose row does not say it."""
_COMMAND = re.compile(r"<bash>(.*?)</bash>", re.DOTALL)


class TerminalEnv(BaseTextEnv):
    """An environment whose commands run in tvsnap's sandboxes, or are answered from its graph.

    Attributes:
        attempt: the attempt.
    """

    def __init__(self, env_config: Mapping[str, Any] | None = None, extras: Mapping[str, Any] | None = None) -> None:
        """
        Args:
            env_config: see `tvsnap.integrations.attempts.Setting.of`.
            extras: the row of the data set; `max_turns` is the most commands.

        Raises:
            UsageError: the row says no task, or the configuration makes no sense.
        """
        super().__init__()
        row = dict(extras or {})
        self.max_turns = plain(row.get("max_turns", TURNS))
        check_whole(self.max_turns, "max_turns", 1)
        self.attempt = Setting.of(env_config or {}).attempt(row if COLUMN in row else dict(row.get("extra_info") or {}))

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Runs the command in what the model wrote; without one, or at the last turn, the attempt ends with a reward.

        Args:
            action: the text that the model wrote.

        Returns:
            The output as the next message of the user, the reward, and whether the attempt is over.

        Raises:
            TvsnapError: tvsnap or the verifier failed, so that there is no reward.
        """
        self.turns += 1
        match = _COMMAND.search(action)
        shown = None if match is None else self.attempt.bash(match[1].strip())
        is_over = match is None or self.turns >= self.max_turns
        reward = 0.0
        if is_over and self.attempt.assignment.verifier is not None:
            reward = self.attempt.reward()
        messages = [] if shown is None else [{"role": "user", "content": shown}]
        metadata = {"state": self.attempt.state, **self.attempt.sources}
        return BaseTextEnvStepOutput(observations=messages, reward=reward, done=is_over, metadata=metadata)

    def close(self) -> None:
        """Ends the rollout."""
        self.attempt.close()

    def get_metrics(self) -> dict[str, Any]:
        """Returns how many calls were answered in which way."""
        return {f"tvsnap/{source}": count for source, count in self.attempt.sources.items()}
