"""OpenHands' workspace on tvsnap: `tvsnap.integrations.openhands.TvsnapWorkspace(image="terminal")`.

A workspace is one rollout. Its commands and files are calls, recorded, and answered if possible; `terminal` gives an
agent the rollout's shell, as OpenHands' own tools run where OpenHands does.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import posixpath
import shlex
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, PrivateAttr

from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import UsageError
from tvsnap.plugins.client.protocols import AnyRollout
from tvsnap.plugins.harnesses.configuration import RolloutConfig, begin_rollout

try:
    from openhands.sdk.git.exceptions import GitCommandError, GitPathError, GitRepositoryError
    from openhands.sdk.git.models import GitChange, GitChangeStatus, GitDiff
    from openhands.sdk.tool import (
        Action,
        Observation,
        Tool,
        ToolAnnotations,
        ToolDefinition,
        ToolExecutor,
        register_tool,
    )
    from openhands.sdk.utils import maybe_truncate
    from openhands.sdk.workspace.base import BaseWorkspace
    from openhands.sdk.workspace.models import CommandResult, FileOperationResult
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"tvsnap.integrations.openhands needs OpenHands' SDK, of which {error.name} is missing: "
        "pip install 'tvsnap[openhands]'",
        name=error.name,
    ) from error

FILE_TIMEOUT = 600.0
"""Seconds that reading or writing a file, or a question to git, may take."""
SHOWN = 30_000
"""The most characters of an output that a model is shown, as by OpenHands' own terminal."""
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # what git calls a tree without files
_STATUS = {"A": GitChangeStatus.ADDED, "D": GitChangeStatus.DELETED}
_numbers = itertools.count()


class TvsnapWorkspace(BaseWorkspace, RolloutConfig):
    """An OpenHands workspace whose commands run in tvsnap's sandboxes, or are answered from its graph."""

    working_dir: str = ""
    """The folder in which commands start and relative paths begin; by default the image's working directory."""
    user: str | None = None
    """The user that runs commands; by default the image's user. The shell of `terminal` is always the image's."""

    _rollout: AnyRollout = PrivateAttr()
    _failure: Exception | None = PrivateAttr(default=None)
    _sources: dict[str, int] = PrivateAttr(default_factory=lambda: {"hit": 0, "coalesced": 0, "executed": 0})

    def model_post_init(self, context: Any) -> None:
        """Begins a rollout.

        Args:
            context: pydantic's.

        Raises:
            ImageNotFound: there is no such image.
            TvsnapError: the image cannot be built, or sandboxes are not possible on this machine; see `tvsnap.Cache`,
                and `tvsnap.connect`.
        """
        super().model_post_init(context)
        self._rollout, image = begin_rollout(self)
        self.working_dir = posixpath.normpath(posixpath.join("/", image.workdir, self.working_dir))

    @property
    def rollout(self) -> AnyRollout:
        """The rollout that makes its calls."""
        return self._rollout

    @property
    def sources(self) -> dict[str, int]:
        """The number of calls by their source."""
        return self._sources

    @property
    def failure(self) -> Exception | None:
        """Why the tool of `terminal` failed, not its command; None if it did not.

        OpenHands shows the model any error of a tool, and goes on. So all that the tool is asked later raises the same
        error, as does the end of a `with` block: what the model has done since must not be taken for its work.
        """
        return self._failure

    def execute_command(self, command: str, cwd: str | Path | None = None, timeout: float = 30.0) -> CommandResult:
        """Runs a command in a fresh bash, or answers it from the graph.

        Args:
            command: the command.
            cwd: the folder in which it starts; a relative path begins at `working_dir`.
            timeout: seconds after which it is ended.

        Returns:
            Its output and its errors, and its exit status, which is -1 if it timed out.

        Raises:
            TvsnapError: tvsnap failed, not the command.
        """
        result = self._exec(command, self._path(cwd or ""), timeout)
        return CommandResult(
            command=command,
            exit_code=-1 if result.exit_code is None else result.exit_code,
            stdout=result.output,
            stderr=result.stderr or "",
            timeout_occurred=result.timed_out,
        )

    def file_upload(self, source_path: str | Path, destination_path: str | Path) -> FileOperationResult:
        """Copies a file or a folder of this machine into the sandbox, and makes the directories above it.

        Args:
            source_path: the path here.
            destination_path: that in the sandbox, a relative one begins at `working_dir`.

        Returns:
            Whether that was possible, and if not, why.

        Raises:
            TvsnapError: tvsnap failed.
        """
        source, path = Path(source_path), self._path(destination_path)
        paths = {"source_path": str(source), "destination_path": path}
        if not os.access(source, os.R_OK):
            return FileOperationResult(success=False, error=f"{source} cannot be read", **paths)
        result = self._count(self.rollout.put(source, path, user=self.user, timeout=FILE_TIMEOUT))
        if result.exit_code != 0:
            return FileOperationResult(success=False, error=result.output.strip(), **paths)
        return FileOperationResult(success=True, file_size=source.stat().st_size, **paths)

    def file_download(self, source_path: str | Path, destination_path: str | Path) -> FileOperationResult:
        """Copies a file or a folder out of the sandbox, and makes the directories above it.

        Args:
            source_path: the path in the sandbox, a relative one begins at `working_dir`.
            destination_path: that here.

        Returns:
            Whether that was possible, and if not, why.

        Raises:
            TvsnapError: tvsnap failed.
        """
        path, destination = self._path(source_path), Path(destination_path)
        paths = {"source_path": path, "destination_path": str(destination)}
        fetched = self.rollout.get(path, timeout=FILE_TIMEOUT)
        self._count(fetched.result)
        try:
            fetched.extract(destination)
        except OSError as error:
            return FileOperationResult(success=False, error=str(error), **paths)
        return FileOperationResult(success=True, file_size=destination.stat().st_size, **paths)

    def git_changes(self, path: str | Path) -> list[GitChange]:
        """Returns what differs from the last commit in a repository of the sandbox, new files included.

        Args:
            path: the repository, or a folder in it, to which what differs is confined.

        Raises:
            GitRepositoryError: it is none.
            TvsnapError: tvsnap failed.
        """
        folder = self._path(path)
        differences = self._git(folder, "diff", "--name-status", "--no-renames", "--relative", self._base(folder))
        changes = [
            GitChange(status=_STATUS.get(status, GitChangeStatus.UPDATED), path=Path(name))
            for status, _, name in (line.partition("\t") for line in differences.splitlines())
        ]
        others = self._git(folder, "ls-files", "--others", "--exclude-standard").splitlines()
        changes += [GitChange(status=GitChangeStatus.ADDED, path=Path(name)) for name in others]
        return sorted(changes, key=lambda change: str(change.path))

    def git_diff(self, path: str | Path) -> GitDiff:
        """Returns a file of the sandbox as the last commit has it, and as it is now.

        Args:
            path: the file.

        Raises:
            GitRepositoryError: it is in no repository.
            GitPathError: neither has it.
            TvsnapError: tvsnap failed.
        """
        folder, name = posixpath.split(self._path(path))
        base = self._base(folder)
        committed = self._exec(f"git show {base}:./{shlex.quote(name)}", folder, FILE_TIMEOUT)
        present = self._count(self.rollout.call("read_file", {"path": self._path(path)}, FILE_TIMEOUT))
        texts = ["\n".join(one.output.splitlines()) if one.exit_code == 0 else None for one in (committed, present)]
        if texts == [None, None]:
            raise GitPathError(f"File does not exist: {self._path(path)}")
        original, modified = (text or "" for text in texts)
        return GitDiff(original=original, modified=modified)

    def _base(self, folder: str) -> str:
        head = self._exec("git rev-parse --git-dir && git rev-parse --verify --quiet HEAD", folder, FILE_TIMEOUT)
        if not head.output:
            raise GitRepositoryError(f"Not a git repository: {folder}: {(head.stderr or '').strip()}")
        return head.output.split()[-1] if head.exit_code == 0 else _EMPTY_TREE

    def _git(self, folder: str, *words: str) -> str:
        command = ["git", "--no-pager", "-c", "core.quotePath=false", *words]
        result = self._exec(shlex.join(command), folder, FILE_TIMEOUT)
        if result.exit_code != 0:
            raise GitCommandError(
                message=f"git {words[0]} failed in {folder}", command=command, exit_code=-1, stderr=result.stderr or ""
            )
        return result.output

    def terminal(self, timeout: float = 120.0) -> Tool:
        """Returns a tool for an agent (`Agent(tools=[workspace.terminal()])`): the rollout's shell, named `terminal`.

        Args:
            timeout: seconds that a command may take whose call says no other.
        """
        name = f"tvsnap_terminal_{next(_numbers)}"
        (tool,) = SandboxTerminalTool.create(workspace=self, timeout=timeout)
        register_tool(name, tool)
        return Tool(name=name)

    def bash(self, command: str, timeout: float) -> ToolResult:
        """Runs a command in the rollout's shell, as the tool of `terminal` does.

        Args:
            command: the command.
            timeout: seconds after which it is ended.

        Raises:
            TvsnapError: tvsnap failed, now or before; see `failure`.
        """
        if self._failure is not None:
            raise self._failure
        try:
            return self._count(self.rollout.call("bash", {"command": command}, timeout))
        except Exception as error:
            self._failure = error
            raise

    def pause(self) -> None:
        """Does nothing: a rollout that makes no calls needs no processor time, and soon no sandbox."""

    def resume(self) -> None:
        """Does nothing; see `pause`."""

    def close(self) -> None:
        """Ends the rollout. Its states stay in the graph, where `tvsnap shell` opens them. It may be called again."""
        self.rollout.close()

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        self._send_completion_callback(exc_type, exc_val)
        self.close()
        if exc_type is None and self._failure is not None:
            raise self._failure

    def __del__(self) -> None:
        rollout = (getattr(self, "__pydantic_private__", None) or {}).get("_rollout")
        if rollout is None or sys.is_finalizing():
            return  # it never began, or was closed with the process's cache: a thread would wait for ever
        # In a thread, because the garbage collector may call this while the calling thread holds tvsnap's locks.
        with contextlib.suppress(RuntimeError):  # at the interpreter's end no thread can start, and the cache is closed
            threading.Thread(target=rollout.close, name="tvsnap-close").start()

    def _exec(self, command: str, cwd: str, timeout: float) -> ToolResult:
        arguments = {"command": command, "cwd": cwd, "separate": True}
        return self._count(self.rollout.call("exec", arguments | ({"user": self.user} if self.user else {}), timeout))

    def _count(self, result: ToolResult) -> ToolResult:
        self._sources[result.source] += 1
        return result

    def _path(self, path: str | Path) -> str:
        return posixpath.join(self.working_dir, Path(path).as_posix()) if path else self.working_dir


class SandboxTerminalAction(Action):
    """A command for the sandbox's shell."""

    command: str = Field(description="The shell command to execute.")
    timeout: float | None = Field(default=None, gt=0, description="Optional. Seconds after which the command is ended.")


class SandboxTerminalObservation(Observation):
    """The output of a command."""

    exit_code: int | None = Field(default=None, description="The exit status; none if the command was ended.")
    timeout: bool = Field(default=False, description="Whether the command was ended by its timeout.")


class SandboxTerminalTool(ToolDefinition[SandboxTerminalAction, SandboxTerminalObservation]):
    """The shell of a workspace's rollout."""

    name: ClassVar[str] = "terminal"

    @classmethod
    def create(cls, *args: Any, **kwargs: Any) -> Sequence[SandboxTerminalTool]:
        """Returns the tool of a workspace; see `TvsnapWorkspace.terminal`.

        Args:
            args: none.
            kwargs: `workspace` and `timeout`.

        Raises:
            UsageError: there is no workspace.
        """
        workspace = kwargs.get("workspace")
        if not isinstance(workspace, TvsnapWorkspace):
            raise UsageError("the tool belongs to a workspace: take what TvsnapWorkspace.terminal returns")
        return [
            cls(
                description="Executes a bash command in a persistent shell: the working directory, variables and "
                "background jobs carry over to the next call. Standard output is no terminal.",
                action_type=SandboxTerminalAction,
                observation_type=SandboxTerminalObservation,
                annotations=ToolAnnotations(title="terminal", destructiveHint=True, openWorldHint=False),
                executor=_Terminal(workspace, kwargs["timeout"]),
            )
        ]


class _Terminal(ToolExecutor[SandboxTerminalAction, SandboxTerminalObservation]):
    def __init__(self, workspace: TvsnapWorkspace, timeout: float) -> None:
        self._workspace, self._timeout = workspace, timeout

    def __call__(self, action: SandboxTerminalAction, conversation: Any = None) -> SandboxTerminalObservation:
        timeout = action.timeout or self._timeout
        result = self._workspace.bash(action.command, timeout)
        ended = f"[The command completed with exit code {result.exit_code}.]"
        if result.timed_out:
            ended = ""  # the output says so
        between = "" if not result.output or result.output.endswith("\n") else "\n"
        text = maybe_truncate(f"{result.output}{between}{ended}", truncate_after=SHOWN)
        observation: SandboxTerminalObservation = SandboxTerminalObservation.from_text(
            text, exit_code=result.exit_code, timeout=result.timed_out
        )
        return observation

    def interrupt(self) -> None:
        self._workspace.rollout.cancel()
