"""The environment `terminal`: a persistent shell, commands in fresh shells, text files, and terminal programs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated

from tvsnap.environments.screen import KEYS_HELP, encode_keys, render
from tvsnap.environments.service import InnerService
from tvsnap.environments.tools import CallContext, Tool, ToolFailed, tool
from tvsnap.environments.toolset import ToolEnvironment
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.observations import Observation, Outcome
from tvsnap.sandboxes.protocol import Sandbox
from tvsnap.sandboxes.shell.words import may_change_unseen

DEFAULT_WAIT = 1.0
CUT = "\n[... output cut here ...]\n"
LOST = "[the shell ended, and its variables and working directory with it; a fresh one takes its place]\n"
"""The last line of the output of a call of `bash` that ended the shell, or that found it ended."""


@tool
def bash(context: CallContext, command: str) -> ToolResult:
    """Runs a command in a persistent bash: the working directory, variables, functions and background jobs carry over
    to the next call. Returns stdout and stderr as they interleave; standard output is no terminal.
    """
    return _result(context.sandbox.run(command, timeout=context.timeout))


@tool(name="exec", in_service=True)
def execute(
    context: CallContext,
    command: str,
    cwd: Annotated[str | None, "where it starts; by default the image's working directory"] = None,
    env: Annotated[dict[str, str] | None, "more environment variables"] = None,
    user: Annotated[str | None, "who runs it; by default the image's user"] = None,
) -> ToolResult:
    """Runs a command in a fresh bash, which leaves the persistent one alone."""
    return _result(context.sandbox.exec(command, timeout=context.timeout, cwd=cwd, env=env or {}, user=user))


@tool(read_only=True, in_service=True)
def read_file(context: CallContext, path: str) -> ToolResult:
    """Returns the contents of a text file."""
    data, limit = context.sandbox.read_file(path), context.limits.output
    if b"\0" in data:
        raise ToolFailed(f"read_file: {path}: is a binary file ({len(data)} bytes), not text")
    truncated = len(data) > limit
    if truncated:
        head = limit // 2
        data = data[:head] + data[len(data) - (limit - head) :]
    return ToolResult.of_text(clean(data, truncated=truncated), 0, 0.0, truncated=truncated)


@tool(in_service=True)
def write_file(sandbox: Sandbox, path: str, content: str) -> str:
    """Writes a text file, making the directories above it and replacing what was there."""
    data = content.encode()
    sandbox.write_file(path, data)
    return f"wrote {len(data)} bytes to {path}\n"


@tool(
    description="Types keys in the terminal of the persistent bash, waits until it is quiet, and returns the screen. "
    f"{KEYS_HELP}."
)
def keys(
    context: CallContext,
    keys: Annotated[str, KEYS_HELP],
    wait: Annotated[float, {"minimum": 0}, f"seconds, at most; by default {DEFAULT_WAIT:g}"] = DEFAULT_WAIT,
) -> ToolResult:
    """Types keys, and returns the screen."""
    began = time.monotonic()
    sandbox, timeout = context.sandbox, context.timeout
    sandbox.send_keys(encode_keys(keys), wait=min(wait, timeout))
    # Who gives it more time sees another screen. It is what anybody sees who gives it just so much.
    cut = timeout < wait and time.monotonic() - began >= timeout
    return ToolResult.of_text(render(sandbox.terminal()), 0, time.monotonic() - began, timed_out=cut, blocked=cut)


@tool(read_only=True)
def screen(sandbox: Sandbox) -> str:
    """Returns what the terminal of the persistent bash shows."""
    return render(sandbox.terminal())


TOOLS = (bash, execute, read_file, write_file, keys, screen)


class TerminalEnvironment(ToolEnvironment):
    """The environment `terminal`. Environments that add tools to those of a terminal are made with it as well."""

    def __init__(
        self,
        name: str = "terminal",
        version: str = "6",
        tools: Iterable[Tool] = (),
        services: Iterable[InnerService] = (),
    ) -> None:
        """
        Args:
            name: the name that an image's `environment` says.
            version: a text that is raised when the tools behave differently.
            tools: further tools, which come before those of the terminal.
            services: programs that run beside the shell of each sandbox; see `InnerService`.
        """
        super().__init__(name, version, (*tools, *TOOLS), services)

    def unchanged(self, call: ToolCall, before: Observation, after: Observation) -> bool:
        """See `Environment.unchanged`: it is what it seems, unless the shell may hold what it does not tell."""
        told = call.name != bash.name or not may_change_unseen(call.arguments["command"], before.hidden | after.hidden)
        return told and before == after


def _result(outcome: Outcome) -> ToolResult:
    output = clean(outcome.output, truncated=outcome.truncated)
    if outcome.shell_lost:
        output += ("" if not output or output.endswith("\n") else "\n") + LOST
    return ToolResult.of_text(
        output,
        outcome.exit_code,
        outcome.duration,
        timed_out=outcome.timed_out,
        blocked=outcome.blocked,
        truncated=outcome.truncated,
    )


def clean(data: bytes, *, truncated: bool = False) -> str:
    """Returns raw output as clean text: UTF-8, line feeds for any line ends, no NUL.

    Args:
        data: the output.
        truncated: it was cut in the middle, where a line says so.
    """
    if truncated:
        middle = len(data) // 2  # a sandbox keeps the first half of its limit, and the last
        return _text(data[:middle]) + CUT + _text(data[middle:])
    return _text(data)


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", "")
