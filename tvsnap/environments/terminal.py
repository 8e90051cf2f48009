"""The environment `terminal`: a persistent shell, commands in fresh shells, text files, and terminal programs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from tvsnap.environments.screen import KEYS_HELP, encode_keys, render
from tvsnap.environments.service import InnerService
from tvsnap.environments.tools import CallContext, Tool, ToolFailed, tool
from tvsnap.environments.toolset import ToolEnvironment
from tvsnap.guest.cut import CUT, INTERRUPTED, whole
from tvsnap.model.arguments import check_variables
from tvsnap.model.calls import STDERR, Part, ToolCall, ToolResult
from tvsnap.model.errors import UsageError
from tvsnap.model.exec_all import MOST_COMMANDS
from tvsnap.model.observations import Command, Observation, Outcome
from tvsnap.sandboxes.protocol import Sandbox
from tvsnap.sandboxes.shell.words import may_change_unseen, writes

DEFAULT_WAIT = 1.0
LOST = "[the shell ended, and its variables and working directory with it; a fresh one takes its place]\n"
"""The last line of the output of a `bash` call that ended the shell, or found it ended."""


@tool
def bash(context: CallContext, command: str) -> ToolResult:
    """Runs a command in a persistent bash: the working directory, variables, functions and background jobs carry over
    to the next call. Returns stdout and stderr as they interleave; standard output is no terminal.
    """
    return _result(context.sandbox.run(command, timeout=context.timeout), context.timeout)


@tool(name="exec", in_service=True)
def execute(
    context: CallContext,
    command: str,
    cwd: Annotated[str | None, "where it starts; by default the image's working directory"] = None,
    env: Annotated[dict[str, str] | None, "more environment variables"] = None,
    user: Annotated[str | None, "who runs it; by default the image's user"] = None,
    separate: Annotated[bool, "keep standard error apart from the output"] = False,
) -> ToolResult:
    """Runs a command in a fresh bash, which leaves the persistent one alone."""
    _check_variables("exec", env or {})
    timeout = context.timeout
    outcome = context.sandbox.exec(command, timeout=timeout, cwd=cwd, env=env or {}, user=user, separate=separate)
    return _result(outcome)


_COMMANDS = {
    "type": "array",
    "maxItems": MOST_COMMANDS,
    "items": {
        "type": "object",
        "properties": {
            "command": {"type": "string"},
            "cwd": {"type": "string"},
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
            "separate": {"type": "boolean"},
        },
        "required": ["command"],
        "additionalProperties": False,
    },
}


@tool
def exec_all(
    context: CallContext,
    commands: Annotated[list, _COMMANDS, "the commands, each with what exec takes but for user"],  # type: ignore[type-arg]
    user: Annotated[str | None, "who runs them; by default the image's user"] = None,
) -> ToolResult:
    """Runs several commands side by side, each in a fresh bash, within one timeout; returns a list of what each came
    to.
    """
    began = time.monotonic()
    wanted = [Command(**each) for each in commands]
    for each in wanted:
        _check_variables("exec_all", each.env)
    outcomes = context.sandbox.exec_all(wanted, timeout=context.timeout, user=user)
    late = [each for each in outcomes if each.timed_out]
    codes = [each.exit_code for each in outcomes if each.exit_code]
    return ToolResult(
        (Part.json([_as_json(_result(each)) for each in outcomes]),),
        None if late else next(iter(codes), 0),
        time.monotonic() - began,
        timed_out=bool(late),
        blocked=all(each.blocked for each in late) and bool(late),
        truncated=any(each.truncated or each.errors_truncated for each in outcomes),
    )


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
    return ToolResult.of_text(text_of(data, truncated=truncated), 0, 0.0, truncated=truncated)


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
    # With more time, the caller would see another screen; with the same timeout, every caller sees this one.
    cut = timeout < wait and time.monotonic() - began >= timeout
    return ToolResult.of_text(render(sandbox.terminal()), 0, time.monotonic() - began, timed_out=cut, blocked=cut)


@tool(read_only=True)
def screen(sandbox: Sandbox) -> str:
    """Returns what the terminal of the persistent bash shows."""
    return render(sandbox.terminal())


TOOLS = (bash, execute, exec_all, read_file, write_file, keys, screen)


class TerminalEnvironment(ToolEnvironment):
    """The environment `terminal`; also the base of environments that add tools to those of a terminal."""

    def __init__(
        self,
        name: str = "terminal",
        version: str = "13",
        tools: Iterable[Tool] = (),
        services: Iterable[InnerService] = (),
    ) -> None:
        """
        Args:
            name: its name in an image's `environment`.
            version: a text that is raised when the tools behave differently.
            tools: further tools, which come before those of the terminal.
            services: programs that run beside the shell of each sandbox; see `InnerService`.
        """
        super().__init__(name, version, (*tools, *TOOLS), services)

    def surely_changes(self, call: ToolCall, before: Observation | None) -> bool:
        """See `Environment.surely_changes`: True if the call writes files, sets variables, or may hide a change."""
        if call.name not in (bash.name, execute.name):
            return False
        command, hidden = call.arguments["command"], frozenset() if before is None else before.hidden
        return writes(command) or (call.name == bash.name and may_change_unseen(command, hidden))

    def unchanged(self, call: ToolCall, before: Observation, after: Observation) -> bool:
        """See `Environment.unchanged`: compares the observations, unless the shell may hide a change."""
        hidden = before.hidden | after.hidden
        return before == after and not self.surely_changes(call, replace(after, hidden=hidden))


def _check_variables(tool: str, env: Mapping[str, str]) -> None:
    """Raises ToolFailed unless each name can be one of a variable."""
    try:
        check_variables(env)
    except UsageError as error:
        raise ToolFailed(f"{tool}: {error}") from None


def _result(outcome: Outcome, timeout: float | None = None) -> ToolResult:
    """Returns the result of a command; with a `timeout`, the output says if the command reached it."""
    output = clean(outcome.output, truncated=outcome.truncated)
    ran_out = outcome.timed_out and timeout is not None and outcome.duration >= timeout  # not if it was cancelled
    late = [INTERRUPTED % timeout] if ran_out else []
    for line in (*late, *([LOST] if outcome.shell_lost else [])):
        output += ("" if not output or output.endswith("\n") else "\n") + line
    parts: tuple[Part, ...] = (Part.text(output),)
    if outcome.errors is not None:
        parts += (Part(STDERR, clean(outcome.errors, truncated=outcome.errors_truncated)),)
    return ToolResult(
        parts,
        outcome.exit_code,
        outcome.duration,
        timed_out=outcome.timed_out,
        blocked=outcome.blocked,
        truncated=outcome.truncated or outcome.errors_truncated,
    )


def _as_json(result: ToolResult) -> dict[str, Any]:
    """Returns the result of one of several commands as plain JSON, without its duration, which varies."""
    flags = {name: True for name in ("timed_out", "blocked", "truncated") if getattr(result, name)}
    return {**result.as_json(), "exit_code": result.exit_code, **flags}


def clean(data: bytes, *, truncated: bool = False) -> str:
    """Returns raw output as clean text: line feeds for any line ends; otherwise like `text_of`."""
    text = text_of(data, truncated=truncated)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text


def text_of(data: bytes, *, truncated: bool = False) -> str:
    """Returns bytes as text, decoded as UTF-8.

    If they were `truncated` in the middle, a line says so, between whole characters.
    """
    if truncated:
        middle = len(data) // 2  # a sandbox keeps the first half of its limit, and the last
        head, tail = whole(data[:middle], data[middle:])
        return head.decode("utf-8", "replace") + CUT + tail.decode("utf-8", "replace")
    return data.decode("utf-8", "replace")
