"""Attempts of a model at a task, for trainers that ask for an environment: a rollout, its shell, and what it is worth.

Trainers hand on rows of a data set, which are plain data, and some take a column `image` for a picture. So a task is
the column `tvsnap` of a row: a mapping, or that as JSON. `as_row` makes one of a generated task.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tvsnap.aio.threads import in_thread
from tvsnap.model.arguments import check_seconds, check_text, check_whole
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import InfrastructureError, UsageError
from tvsnap.model.grades import Verifier
from tvsnap.plugins.client.protocols import AnyRollout
from tvsnap.plugins.harnesses.caches import CacheOptions, process_cache
from tvsnap.plugins.harnesses.images import find_image

COLUMN = "tvsnap"
TIMEOUT, SHOWN = 30.0, 4000  # seconds, characters
THREADS = ThreadPoolExecutor(64, thread_name_prefix="tvsnap-attempt")
"""Make the calls of trainers that have an event loop, which must not wait for them."""
COMMAND = "The bash command. It runs in a shell that is kept: the directory and variables last."
"""The description of the argument of the tool `bash` for models."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A task, as a row of a data set says it.

    Attributes:
        image: an image's name or digest, or the path of a folder that describes one.
        task: the task's name, by which rollouts are listed.
        setup: commands that are run before the model begins.
        verifier: finds out what the model has achieved; None if the trainer grades by other means.
        salt: keeps rollouts apart: they share states only with those of the same salt.
    """

    image: str
    task: str = ""
    setup: tuple[str, ...] = ()
    verifier: Verifier | None = None
    salt: str | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Assignment:
        """Returns the task of a row; other columns are not looked at.

        Args:
            row: its column `tvsnap` has `image`, and may have `task` (a text), `setup` (a list of commands), `verifier`
                (a command, or a mapping with the arguments of `tvsnap.Verifier`) and `salt`.

        Raises:
            UsageError: there is no such column, or no `image` in it, or something else makes no sense.
        """
        value = row.get(COLUMN)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError as error:
                raise UsageError(f"the column {COLUMN} is no JSON: {error}") from None
        if not isinstance(value, Mapping):
            raise UsageError(f"a row needs the column {COLUMN}, which says the task; it has {', '.join(sorted(row))}")
        unknown = value.keys() - cls.__dataclass_fields__.keys()
        if unknown:
            names = ", ".join(cls.__dataclass_fields__)
            raise UsageError(f"unknown in the column {COLUMN}: {', '.join(sorted(unknown))}; there are {names}")
        image = value.get("image")
        if not image or not isinstance(image, str):
            raise UsageError(f"the column {COLUMN} needs image, the name of an image (tvsnap image ls), not {image!r}")
        setup = value.get("setup") or ()
        if isinstance(setup, str) or not isinstance(setup, Sequence) or not all(isinstance(one, str) for one in setup):
            raise UsageError(f"setup must be a list of commands, not {setup!r}")
        task, salt = check_text(value.get("task") or "", "task"), value.get("salt")
        salt = None if salt is None else check_text(salt, "salt")
        return cls(image, task, tuple(setup), _verifier(value.get("verifier")), salt)


def _verifier(description: object) -> Verifier | None:
    if description is None or description == "":
        return None
    if isinstance(description, Mapping):
        # Tables of a fixed shape fill what a row lacks with None.
        arguments = {name: value for name, value in description.items() if value is not None}
        try:
            return Verifier(**arguments)
        except TypeError as error:
            raise UsageError(f"verifier has unknown or missing arguments: {error} (see tvsnap.Verifier)") from None
    return Verifier.of(description)


def plain(value: Any) -> Any:
    """Returns a value of a table, such as one of NumPy, as one of Python."""
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value


def as_row(task: Any) -> dict[str, str]:
    """Returns a generated task as a row of a data set.

    Args:
        task: a `tvsnap.training.tasks.Task`.

    Returns:
        The columns `tvsnap` (JSON, as verifiers differ in their files) and `instruction`, which is what the model is to
        be told.

    Raises:
        UsageError: its commands are not for a shell.
    """
    if task.tool != "bash":
        raise UsageError(
            f"task {task.name} is done with the tool {task.tool}, and trainers are given bash; choose another kind"
        )
    verifier: Verifier = task.verifier
    arguments = {
        "check": verifier.check,
        "files": dict(verifier.files),
        "timeout": verifier.timeout,
        "user": verifier.user,
    }
    value = {"image": task.image, "task": task.name, "setup": list(task.setup), "verifier": arguments}
    return {COLUMN: json.dumps(value), "instruction": task.instruction}


def as_text(result: ToolResult, most: int) -> str:
    """Returns a result as models are shown it: the output, cut in the middle, and how the command ended if not well.

    Args:
        result: the result.
        most: characters of output that are shown.
    """
    output = result.output
    if len(output) > most:
        cut = len(output) - most
        output = f"{output[: most // 2]}\n[{cut} characters are left out]\n{output[len(output) - (most - most // 2) :]}"
    if result.exit_code:  # that of a command that ran into its timeout is None, and its output says so
        return f"{output.rstrip()}\n[exit status {result.exit_code}]".lstrip("\n")
    return output


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings of all attempts of a trainer.

    Attributes:
        options: the cache, which the attempts of a process share.
        timeout: seconds that a command may take.
        shown: characters of an output that the model is shown; of a longer one, the middle is left out.
    """

    options: CacheOptions
    timeout: float = TIMEOUT
    shown: int = SHOWN

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Setting:
        """Returns the setting that a configuration says.

        Args:
            config: `home`, or `url` and `token`; `timeout`, `shown`, and settings of the cache (`backend`, `policy`,
                `use_cache`, `timeouts`, `grade_executions`), as in `tvsnap.Cache`.

        Raises:
            UsageError: one is unknown, or makes no sense.
        """
        settings = {name: plain(value) for name, value in config.items()}
        names = {*CacheOptions.__dataclass_fields__, "timeout", "shown"}
        unknown = settings.keys() - names
        if unknown:
            raise UsageError(f"unknown settings: {', '.join(sorted(unknown))}; there are {', '.join(sorted(names))}")
        timeout = check_seconds(settings.pop("timeout", TIMEOUT), "timeout")
        shown = settings.pop("shown", SHOWN)
        check_whole(shown, "shown", 1)
        place = [settings.pop(name, None) for name in ("home", "url", "token")]
        return cls(CacheOptions.chosen(*place, **settings), timeout, shown)

    def attempt(self, row: Mapping[str, Any]) -> Attempt:
        """Returns an attempt at the task of a row, see `Assignment.of`; raises UsageError if it makes no sense."""
        return Attempt(self, Assignment.of(row))


@dataclass
class Attempt:
    """One attempt of a model at a task.

    A trainer may show the model the text of an exception, or go on without one. So an error is kept, and
    raised by all that follows, `reward` among it: what a model saw then is not what its commands did, and must not be
    learnt from.

    Attributes:
        setting: the cache, and what is shown.
        assignment: the task.
        sources: the number of calls by their source.
        failure: the error that ended it, if one did.
    """

    setting: Setting
    assignment: Assignment
    sources: dict[str, int] = field(default_factory=lambda: {"hit": 0, "coalesced": 0, "executed": 0})
    failure: Exception | None = None
    _rollout: AnyRollout | None = None
    _rewarded: bool = False
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _order: asyncio.Lock = field(default_factory=asyncio.Lock)  # in which they came, unlike threads that want a lock

    async def bash_aside(self, command: object) -> str:
        """Does what `bash` does, in a thread, after the commands that were given before; raises what that does."""
        async with self._order:
            return await in_thread(THREADS, partial(self.bash, command))

    def bash(self, command: object) -> str:
        """Runs a command in the attempt's shell, or answers it from the graph; returns what the model is shown.

        The first one begins the rollout, and makes the calls of `Assignment.setup` before.

        Raises:
            UsageError: the attempt has had its reward, and is over.
            TvsnapError: tvsnap failed, not the command.
        """
        try:
            command = check_text(command, "the command")
        except UsageError as error:
            return f"[{error}]"
        if self._rewarded:
            raise UsageError("the attempt has had its reward, and is over: begin another one")
        with self._turn, self._noted():
            return as_text(self._call(self._opened(), command), self.setting.shown)

    def reward(self) -> float:
        """Returns what the present state is worth; with that, the attempt is over.

        Raises:
            UsageError: the task has no verifier.
            GradingFailed: the verifier failed, so that there is no reward.
            TvsnapError: tvsnap failed.
        """
        verifier = self.assignment.verifier
        if verifier is None:
            raise UsageError("the task has no verifier, so that it has no reward; give the row one, or grade elsewhere")
        with self._turn, self._noted():
            reward = float(self._opened().grade(verifier).reward)
            self._rewarded = True
            return reward

    def close(self) -> None:
        """Ends the rollout; its states stay in the graph. It may be called again."""
        with self._turn:
            rollout, self._rollout = self._rollout, None
            if rollout is not None:
                rollout.close()

    @property
    def state(self) -> str | None:
        """The state at which it stands; None before its first command."""
        return None if self._rollout is None else self._rollout.state

    def _opened(self) -> AnyRollout:
        """Returns the rollout, which the first use begins."""
        if self._rollout is None:
            cache, assignment = process_cache(self.setting.options), self.assignment
            self._rollout = cache.rollout(find_image(cache.images, assignment.image), assignment.task, assignment.salt)
            for command in assignment.setup:
                result = self._call(self._rollout, command)
                if result.timed_out or result.exit_code:
                    raise InfrastructureError(
                        f"the task {assignment.task or assignment.image} could not be set up, because a command of its "
                        f"setup failed: {as_text(result, 400)}"
                    )
        return self._rollout

    def _call(self, rollout: AnyRollout, command: str) -> ToolResult:
        result = rollout.call("bash", {"command": command}, self.setting.timeout)
        self.sources[result.source] += 1
        return result

    @contextlib.contextmanager
    def _noted(self) -> Any:
        if self.failure is not None:
            raise self.failure
        try:
            yield
        except Exception as error:
            self.failure = error
            raise
