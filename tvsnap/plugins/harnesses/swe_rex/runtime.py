"""The calls of one rollout: its session is the tool `bash`, and programs beside the session the tool `exec`."""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import os
import posixpath
import re
import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from tvsnap.aio.threads import in_thread
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import StateLost, UsageError
from tvsnap.model.same_turn import SameTurn
from tvsnap.plugins.client.protocols import AnyRollout
from tvsnap.plugins.harnesses.swe_rex.host import (
    AbstractRuntime,
    Action,
    BashAction,
    BashIncorrectSyntaxError,
    BashInterruptAction,
    BashObservation,
    CloseBashSessionResponse,
    CloseResponse,
    CloseSessionRequest,
    CloseSessionResponse,
    Command,
    CommandResponse,
    CommandTimeoutError,
    CreateBashSessionResponse,
    CreateSessionRequest,
    CreateSessionResponse,
    IsAliveResponse,
    NonZeroExitCodeError,
    Observation,
    ReadFileRequest,
    ReadFileResponse,
    SessionDoesNotExistError,
    SessionExistsError,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
    WriteFileResponse,
    get_logger,
)

T = TypeVar("T")

OWN_TIMEOUT = 60.0
"""Seconds of a call for which SWE-ReX gives no timeout, and which does nothing of the agent's, at most."""
_ESCAPES = re.compile(r"\x1B[@-_][0-?]*[ -/]*[@-~]")
"""Sequences that control a terminal, such as colours, which SWE-ReX leaves out of the output of sessions."""


class TvsnapRuntime(AbstractRuntime):
    """A SWE-ReX runtime over one rollout, whose calls are made in the order in which they are asked for.

    Programs beside the session that are asked for at the same time are one call.

    Attributes:
        rollout: the rollout that makes its calls.
        sources: the number of calls by their source.
        logger: SWE-ReX's logger.
    """

    def __init__(self, rollout: AnyRollout, workdir: str = "/", *, logger: logging.Logger | None = None) -> None:
        """
        Args:
            rollout: the rollout.
            workdir: the folder in which commands beside the session start, and relative paths begin: the image's.
            logger: its logger; by default SWE-ReX's logger of runtimes.
        """
        self.rollout = rollout
        self.sources = {"hit": 0, "coalesced": 0, "executed": 0}
        self.logger = logger or get_logger("rex-runtime")
        self._workdir = posixpath.normpath(posixpath.join("/", workdir))
        self._session: str | None = None
        self._lost = ""  # why the rollout cannot go on
        self._closed = False
        # One thread keeps the order, in whichever event loop a call is awaited: SWE-agent has one for each.
        self._turns = ThreadPoolExecutor(1, thread_name_prefix="tvsnap-rex")
        self._beside = SameTurn(lambda *call: self._in_turn(partial(self.rollout.call, *call)))

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Returns whether the rollout can go on: it was not closed, and its state is not lost.

        Args:
            timeout: ignored: nothing is waited for.
        """
        reason = "the runtime is closed" if self._closed else self._lost
        return IsAliveResponse(is_alive=not reason, message=reason)

    async def create_session(self, request: CreateSessionRequest) -> CreateSessionResponse:
        """Gives the rollout's shell a name. There is one session at a time.

        Args:
            request: the name, and the files of the sandbox that the shell reads first.

        Returns:
            What reading the files printed.

        Raises:
            SessionExistsError: the session is there.
            UsageError: another session is there.
            CommandTimeoutError: the files took longer than `request.startup_timeout` seconds.
            TvsnapError: tvsnap failed, not a command.
        """
        return await self._in_turn(partial(self._create_session, request))

    def _create_session(self, request: CreateSessionRequest) -> CreateSessionResponse:
        if self._session == request.session:
            raise SessionExistsError(f"session {request.session} already exists")
        if self._session is not None:
            raise UsageError(
                f"session {request.session!r}: a rollout has one shell, that of the session {self._session!r}; close "
                "that session first, use execute beside it, or start another deployment"
            )
        output = ""
        if request.startup_source:
            command = " ; ".join(f"source {path}" for path in request.startup_source)
            output = self._bash(command, request.startup_timeout).output
        self._session = request.session
        return CreateBashSessionResponse(output=_ESCAPES.sub("", output))

    async def run_in_session(self, action: Action) -> Observation:
        """Runs a command in the session's shell, or answers it from the graph; or ends the command that is under way.

        Args:
            action: the command, its timeout in seconds, and what is done with its exit status; or an interruption.

        Returns:
            Its output without what controls a terminal, and its exit status, None with `check="ignore"`.

        Raises:
            SessionDoesNotExistError: there is no such session.
            BashIncorrectSyntaxError: bash cannot read the command, of which nothing was run.
            CommandTimeoutError: it was ended by its timeout, or by an interruption. The shell is there for the next
                one, with no need to interrupt it.
            NonZeroExitCodeError: it failed, and `check` is "raise".
            UsageError: it is interactive, or has `expect`.
            TvsnapError: tvsnap failed, not the command: an agent must not see that as a command's output.
        """
        if isinstance(action, BashInterruptAction):
            self._check_session(action.session)
            await in_thread(None, self.rollout.cancel)
            return BashObservation(exit_code=0)
        return await self._in_turn(partial(self._run, action))

    def _run(self, action: BashAction) -> BashObservation:
        self._check_session(action.session)
        if action.is_interactive_command or action.is_interactive_quit or action.expect:
            raise UsageError(
                f"{action.command!r}: what a terminal program says is not waited for, so that is_interactive_command, "
                "is_interactive_quit and expect do not work; give the program its input in the command, or use the "
                'tools keys and screen: runtime.rollout.call("keys", {"keys": ...})'
            )
        self._check_syntax(action.command)
        result = self._bash(action.command, action.timeout)
        output = _ESCAPES.sub("", result.output)
        if action.check == "raise" and result.exit_code != 0:
            raise _failed(action, result, f"Here is the output:\n{output!r}")
        return BashObservation(output=output, exit_code=None if action.check == "ignore" else result.exit_code)

    def _check_session(self, name: str) -> None:
        if name != self._session:
            raise SessionDoesNotExistError(f"session {name!r} does not exist")

    def _check_syntax(self, command: str) -> None:
        arguments = {"command": f"printf '%s\\n' {shlex.quote(command)} | bash -n", "separate": True}
        result = self._call("exec", arguments, OWN_TIMEOUT)
        if result.exit_code == 0:
            return
        if result.timed_out:  # which says nothing of the command
            raise CommandTimeoutError(f"{command!r} was interrupted while bash checked it; nothing of it was run")
        errors = result.stderr or ""
        raise BashIncorrectSyntaxError(
            f"Error (exit code {result.exit_code}) while checking bash command \n{command!r}\n"
            f"---- Stderr ----\n{errors}\n---- Stdout ----\n{result.output}",
            extra_info={"bash_stdout": result.output, "bash_stderr": errors},
        )

    async def close_session(self, request: CloseSessionRequest) -> CloseSessionResponse:
        """Ends the session's shell, and its jobs; a session that is created later has a fresh one.

        Args:
            request: the name of the session.

        Raises:
            SessionDoesNotExistError: there is no such session.
            TvsnapError: tvsnap failed.
        """
        return await self._in_turn(partial(self._close_session, request))

    def _close_session(self, request: CloseSessionRequest) -> CloseSessionResponse:
        self._check_session(request.session)
        self._bash("kill -HUP $(jobs -p) 2>/dev/null; exit", OWN_TIMEOUT)
        self._session = None
        return CloseBashSessionResponse()

    async def execute(self, command: Command) -> CommandResponse:
        """Runs a program beside the session, or answers it from the graph.

        Programs that are awaited at the same time, with the same timeout, run side by side.

        Args:
            command: the program and its arguments, or with `shell` a command of `/bin/sh`; its environment, if that
                is not the sandbox's; and where it starts.

        Returns:
            Its output, its errors, and its exit status, which is 127 if there is no such program.

        Raises:
            CommandTimeoutError: it was ended by its timeout.
            NonZeroExitCodeError: it failed, and `check` is true.
            TvsnapError: tvsnap failed, not the command.
        """
        words = [command.command] if isinstance(command.command, str) else command.command
        if command.shell:
            words = ["/bin/sh", "-c", *words]
        if command.env is not None:
            words = ["env", "-i", *(f"{name}={value}" for name, value in sorted(command.env.items())), *words]
        arguments: dict[str, Any] = {"command": f"exec {shlex.join(words)}", "cwd": self._path(command.cwd or "")}
        arguments["separate"] = not command.merge_output_streams
        result = self._count(await self._beside.exec(arguments, command.timeout))
        if result.timed_out:
            raise CommandTimeoutError(f"Timeout ({command.timeout}s) exceeded while running command")
        errors = result.stderr or ""
        if command.check and result.exit_code != 0:
            raise _failed(command, result, f"Stdout:\n{result.output!r}\nStderr:\n{errors!r}")
        return CommandResponse(stdout=result.output, stderr=errors, exit_code=result.exit_code)

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        """Returns the contents of a text file.

        Args:
            request: its path, and how it is decoded; by default as UTF-8.

        Raises:
            OSError: it cannot be read, such as a FileNotFoundError.
            UnicodeDecodeError: it is no such text.
            TvsnapError: tvsnap failed.
        """
        return await self._in_turn(partial(self._read_file, request))

    def _read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        path = self._path(request.path)
        fetched = self.rollout.get(path)
        self._count(fetched.result)
        if fetched.digest is None:
            raise _error(fetched.result.output, path)
        content = io.BytesIO(fetched.read())
        return ReadFileResponse(content=io.TextIOWrapper(content, request.encoding or "utf-8", request.errors).read())

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        """Writes a text file, as UTF-8, and makes the directories above it.

        Args:
            request: its path and its contents.

        Raises:
            OSError: it cannot be written.
            TvsnapError: tvsnap failed.
        """
        return await self._in_turn(partial(self._write_file, request))

    def _write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        path = self._path(request.path)
        result = self._call("write_file", {"path": path, "content": request.content}, OWN_TIMEOUT)
        if result.exit_code != 0:
            raise _error(result.output, path)
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        """Copies a file or a folder of this machine into the sandbox.

        Args:
            request: the path here, and that there. A folder is merged with one that is there; a file goes into it.

        Raises:
            OSError: it cannot be written.
            UsageError: it cannot be read here, or holds more than files, folders and links.
            TvsnapError: tvsnap failed.
        """
        return await self._in_turn(partial(self._upload, request))

    def _upload(self, request: UploadRequest) -> UploadResponse:
        source, path = os.path.abspath(request.source_path), self._path(request.target_path)
        result = self._count(self.rollout.put(source, path))
        if result.exit_code != 0 and os.strerror(errno.EISDIR) in result.output:
            path = posixpath.join(path, os.path.basename(source))
            result = self._count(self.rollout.put(source, path))
        if result.exit_code != 0:
            raise _error(result.output, path)
        return UploadResponse()

    async def close(self) -> CloseResponse:
        """Ends the rollout, and a command that is under way. Its states stay in the graph. It may be called again."""
        await in_thread(None, self.end)
        return CloseResponse()

    def end(self) -> None:
        """Does what `close` does, and waits for it."""
        if not self._closed:
            self._closed = True
            self.rollout.cancel()
            self.rollout.close()

    async def _in_turn(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns, done after what was asked for before."""

        def made() -> T:
            if self._closed:
                raise UsageError("the runtime is closed: start a deployment")
            try:
                return work()
            except StateLost as error:
                self._lost = str(error)
                raise

        return await asyncio.wrap_future(self._turns.submit(made))

    def _bash(self, command: str, timeout: float | None) -> ToolResult:
        result = self._call("bash", {"command": command}, timeout)
        if result.timed_out:
            raise CommandTimeoutError(f"timeout after {timeout} seconds while running command {command!r}")
        return result

    def _call(self, tool: str, arguments: dict[str, Any], timeout: float | None) -> ToolResult:
        return self._count(self.rollout.call(tool, arguments, timeout))

    def _count(self, result: ToolResult) -> ToolResult:
        self.sources[result.source] += 1
        return result

    def _path(self, path: str) -> str:
        return posixpath.join(self._workdir, path) if path else self._workdir


def _failed(action: BashAction | Command, result: ToolResult, details: str) -> Exception:
    """Returns the error of a command that failed and was to be checked, in SWE-ReX's words."""
    message = f"Command {action.command!r} failed with exit code {result.exit_code}. {details}"
    failed: Exception = NonZeroExitCodeError(f"{action.error_msg}: {message}" if action.error_msg else message)
    return failed


def _error(message: str, path: str) -> OSError:
    """Returns the error of a file tool, in whose words it is, as Python's own functions raise it."""
    number = next((code for code in errno.errorcode if message.rstrip().endswith(f": {os.strerror(code)}")), errno.EIO)
    return OSError(number, message.strip() if number == errno.EIO else os.strerror(number), path)
