"""mini-swe-agent's environment on tvsnap: `environment_class: tvsnap.integrations.mini_swe_agent.TvsnapEnvironment`.

Each action is a call of one rollout's tool `exec`: recorded, and answered if possible.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import sys
import threading
from typing import Any

from pydantic import ConfigDict, Field

from tvsnap.model.arguments import check_text
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import UsageError
from tvsnap.plugins.harnesses.configuration import RolloutConfig, begin_rollout

try:
    from minisweagent.exceptions import Submitted
    from minisweagent.utils.serialize import recursive_merge
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"tvsnap.integrations.mini_swe_agent needs mini-swe-agent, of which {error.name} is missing: "
        "pip install 'tvsnap[mini-swe-agent]'",
        name=error.name,
    ) from error

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The first line of output of the command by which the agent submits its work."""
_PLAIN = ["bash", "-c"]  # what the tool `exec` does by default


class TvsnapEnvironmentConfig(RolloutConfig):
    """The configuration of `TvsnapEnvironment`: that of mini-swe-agent's Docker environment, and tvsnap's own."""

    model_config = ConfigDict(extra="forbid")

    cwd: str = ""
    """The folder in which commands start; by default the image's working directory."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of commands."""
    forward_env: list[str] = Field(default_factory=list)
    """Names of variables of this process that commands get, if they are set here and not in `env`."""
    timeout: float = 30
    """Seconds after which a command is ended."""
    interpreter: list[str] = _PLAIN
    """The program that runs a command, which is its last argument."""
    user: str | None = None
    """The user that runs commands; by default the image's user."""


class TvsnapEnvironment:
    """A mini-swe-agent environment whose commands run in tvsnap's sandboxes, or are answered from its graph.

    Attributes:
        config: its configuration.
        rollout: the rollout that makes its calls.
        sources: the number of commands by their source.
    """

    __module__ = "tvsnap.integrations.mini_swe_agent"  # the name that users give it, and that trajectories say

    def __init__(self, *, config_class: type = TvsnapEnvironmentConfig, **kwargs: Any) -> None:
        """
        Args:
            config_class: a subclass of `TvsnapEnvironmentConfig`.
            kwargs: its fields.

        Raises:
            ImageNotFound: there is no such image.
            TvsnapError: sandboxes are not possible on this machine; see `tvsnap.Cache`, and `tvsnap.connect`.
        """
        self.config: TvsnapEnvironmentConfig = config_class(**kwargs)
        self.sources = {"hit": 0, "coalesced": 0, "executed": 0}
        self.rollout, _ = begin_rollout(self.config)

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: float | None = None) -> dict[str, Any]:
        """Runs a command in a fresh shell, or answers it from the graph.

        Args:
            action: contains the `command`.
            cwd: the folder in which it starts; by default the configuration's.
            timeout: seconds after which it is ended; by default the configuration's.

        Returns:
            Its output (`output`), its exit status (`returncode`, -1 if it timed out) and an error (`exception_info`),
            as mini-swe-agent's own environments return them.

        Raises:
            Submitted: the command submits the agent's work.
            TvsnapError: tvsnap failed, not the command: an agent never sees that as a command's output.
        """
        command = action.get("command", "")
        seconds = timeout or self.config.timeout
        try:
            check_text(command, "the command")
        except UsageError as error:  # the model's: an observation, by which it can correct itself
            return _failure("", "ValueError", str(error))
        result = self.rollout.call("exec", self._arguments(command, cwd), seconds)
        self.sources[result.source] += 1
        output = _output(command, seconds, result)
        _check_finished(output)
        return output

    def _arguments(self, command: str, cwd: str) -> dict[str, Any]:
        config = self.config
        if config.interpreter != _PLAIN:
            command = f"exec {shlex.join([*config.interpreter, command])}"
        forwarded = {name: os.environ[name] for name in config.forward_env if name in os.environ}
        chosen = {"cwd": cwd or config.cwd, "env": {**forwarded, **config.env}, "user": config.user}
        return {"command": command, **{name: value for name, value in chosen.items() if value}}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Returns what templates of prompts may use: the configuration, and the output of `uname`.

        Args:
            kwargs: more of it.
        """
        merged: dict[str, Any] = recursive_merge(self.config.model_dump(), platform.uname()._asdict(), kwargs)
        return merged

    def serialize(self) -> dict[str, Any]:
        """Returns what is saved with the agent's trajectory: the configuration, and the rollout's state."""
        about = {
            "environment": self.config.model_dump(mode="json"),
            "environment_type": f"{type(self).__module__}.{type(self).__name__}",
        }
        return {"info": {"config": about, "tvsnap": self._standing()}}

    def _standing(self) -> dict[str, Any]:
        rollout = self.rollout
        return {"rollout": rollout.id, "root": rollout.root, "state": rollout.state, **self.sources}

    def cleanup(self) -> None:
        """Ends the rollout. Its state stays in the graph, where `tvsnap shell` opens it. It may be called again."""
        self.rollout.close()

    def __del__(self) -> None:
        if "rollout" not in self.__dict__ or sys.is_finalizing():
            return  # it never began, or was closed with the process's cache: a thread would wait for ever
        # In a thread, because the garbage collector may call this while the calling thread holds tvsnap's locks.
        with contextlib.suppress(RuntimeError):  # at the interpreter's end no thread can start, and the cache is closed
            threading.Thread(target=self.rollout.close, name="tvsnap-close").start()


def _output(command: str, seconds: float, result: ToolResult) -> dict[str, Any]:
    if not result.timed_out and result.exit_code is not None:
        return {"output": result.output, "returncode": result.exit_code, "exception_info": ""}
    return _failure(result.output, "TimeoutExpired", f"Command {command!r} timed out after {seconds:g} seconds")


def _failure(output: str, kind: str, message: str) -> dict[str, Any]:
    """Returns what mini-swe-agent's own environments return if an exception of this kind ends a command."""
    return {
        "output": output,
        "returncode": -1,
        "exception_info": f"An error occurred while executing the command: {message}",
        "extra": {"exception_type": kind, "exception": message},
    }


def _check_finished(output: dict[str, Any]) -> None:
    first, *rest = output["output"].lstrip().splitlines(keepends=True) or [""]
    if first.strip() != SUBMIT or output["returncode"] != 0:
        return
    submission = "".join(rest)
    extra = {"exit_status": "Submitted", "submission": submission}
    raise Submitted({"role": "exit", "content": submission, "extra": extra})
