"""The environment `terminal`: a persistent shell, commands in fresh shells, text files, and terminal programs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import ClassVar

from tvsnap.environments.base import Tool, validate_call
from tvsnap.environments.screen import KEYS_HELP, encode_keys, render
from tvsnap.model.calls import ToolCall, ToolResult, canonical_json
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Observation, Outcome
from tvsnap.sandboxes.protocol import Sandbox
from tvsnap.sandboxes.shell.words import may_change_unseen

DEFAULT_WAIT = 1.0
CUT = "\n[... output cut here ...]\n"
LOST = "[the shell ended, and its variables and working directory with it; a fresh one takes its place]\n"
"""The last line of the output of a call of `bash` that ended the shell, or that found it ended."""

_TEXT = {"type": "string"}
_BASH = Tool(
    "bash",
    "Runs a command in a persistent bash: the working directory, variables, functions and background jobs carry over "
    "to the next call. Returns stdout and stderr as they interleave; standard output is no terminal.",
    {"type": "object", "properties": {"command": _TEXT}, "required": ["command"]},
)
_EXEC = Tool(
    "exec",
    "Runs a command in a fresh bash, which leaves the persistent one alone.",
    {
        "type": "object",
        "properties": {
            "command": _TEXT,
            "cwd": {**_TEXT, "description": "where it starts; by default the image's working directory"},
            "env": {"type": "object", "additionalProperties": _TEXT, "description": "more environment variables"},
            "user": {**_TEXT, "description": "who runs it; by default the image's user"},
        },
        "required": ["command"],
    },
)
_READ_FILE = Tool(
    "read_file",
    "Returns the contents of a text file.",
    {"type": "object", "properties": {"path": _TEXT}, "required": ["path"]},
    read_only=True,
)
_WRITE_FILE = Tool(
    "write_file",
    "Writes a text file, making the directories above it and replacing what was there.",
    {"type": "object", "properties": {"path": _TEXT, "content": _TEXT}, "required": ["path", "content"]},
)
_KEYS = Tool(
    "keys",
    f"Types keys in the terminal of the persistent bash, waits until it is quiet, and returns the screen. {KEYS_HELP}.",
    {
        "type": "object",
        "properties": {
            "keys": {**_TEXT, "description": KEYS_HELP},
            "wait": {"type": "number", "minimum": 0, "description": f"seconds, at most; by default {DEFAULT_WAIT:g}"},
        },
        "required": ["keys"],
    },
)
_SCREEN = Tool(
    "screen",
    "Returns what the terminal of the persistent bash shows.",
    {"type": "object", "properties": {}, "required": []},
    read_only=True,
)

# What can change an output. Processor time is not among them: it changes how long a call takes.
_BEHAVIOUR = ("memory", "processes", "output", "disk")


class TerminalEnvironment:
    """Fulfils `tvsnap.environments.base.Environment`."""

    name = "terminal"
    serves = False
    version = "4"
    tools: ClassVar[Mapping[str, Tool]] = {
        tool.name: tool for tool in (_BASH, _EXEC, _READ_FILE, _WRITE_FILE, _KEYS, _SCREEN)
    }

    def __init__(self) -> None:
        self._actions: dict[str, Callable[[Sandbox, ToolCall, float, Limits], ToolResult]] = {
            "bash": _bash,
            "exec": _exec,
            "read_file": _read_file,
            "write_file": _write_file,
            "keys": _keys,
            "screen": _screen,
        }

    def tool(self, call: ToolCall) -> Tool:
        """See `Environment.tool`."""
        validate_call(self.tools, call)
        return self.tools[call.name]

    def prepare(self, sandbox: Sandbox) -> None:
        """See `Environment.prepare`: a fresh sandbox has its shell."""

    def execute(self, sandbox: Sandbox, call: ToolCall, timeout: float, limits: Limits) -> ToolResult:
        """See `Environment.execute`."""
        return self._actions[call.name](sandbox, call, timeout, limits)

    def observe(self, sandbox: Sandbox) -> Observation:
        """See `Environment.observe`: the sandbox knows its shell, there is nothing to add."""
        return sandbox.observe()

    def unchanged(self, call: ToolCall, before: Observation, after: Observation) -> bool:
        """See `Environment.unchanged`: it is what it seems, unless the shell may hold what it does not tell."""
        told = call.name != _BASH.name or not may_change_unseen(call.arguments["command"], before.hidden | after.hidden)
        return told and before == after

    def behaviour(self, limits: Limits) -> str:
        """See `Environment.behaviour`."""
        return canonical_json({name: value for name, value in asdict(limits).items() if name in _BEHAVIOUR})


def _bash(sandbox: Sandbox, call: ToolCall, timeout: float, limits: Limits) -> ToolResult:
    return _result(sandbox.run(call.arguments["command"], timeout=timeout))


def _exec(sandbox: Sandbox, call: ToolCall, timeout: float, limits: Limits) -> ToolResult:
    arguments = call.arguments
    outcome = sandbox.exec(
        arguments["command"],
        timeout=timeout,
        cwd=arguments.get("cwd"),
        env=arguments.get("env", {}),
        user=arguments.get("user"),
    )
    return _result(outcome)


def _read_file(sandbox: Sandbox, call: ToolCall, timeout: float, limits: Limits) -> ToolResult:
    def read() -> ToolResult:
        data = sandbox.read_file(path)
        if b"\0" in data:
            return ToolResult.of_text(f"read_file: {path}: is a binary file ({len(data)} bytes), not text\n", 1, 0.0)
        truncated = len(data) > limits.output
        if truncated:
            head = limits.output // 2
            data = data[:head] + data[len(data) - (limits.output - head) :]
        return ToolResult.of_text(clean(data, truncated=truncated), 0, 0.0, truncated=truncated)

    path = call.arguments["path"]
    return _file_action("read_file", path, read)


def _write_file(sandbox: Sandbox, call: ToolCall, timeout: float, limits: Limits) -> ToolResult:
    def write() -> ToolResult:
        data = call.arguments["content"].encode()
        sandbox.write_file(path, data)
        return ToolResult.of_text(f"wrote {len(data)} bytes to {path}\n", 0, 0.0)

    path = call.arguments["path"]
    return _file_action("write_file", path, write)


def _keys(sandbox: Sandbox, call: ToolCall, timeout: float, limits: Limits) -> ToolResult:
    began = time.monotonic()
    wait = float(call.arguments.get("wait", DEFAULT_WAIT))
    sandbox.send_keys(encode_keys(call.arguments["keys"]), wait=min(wait, timeout))
    # Who gives it more time sees another screen. It is what anybody sees who gives it just so much.
    cut = timeout < wait and time.monotonic() - began >= timeout
    return ToolResult.of_text(render(sandbox.terminal()), 0, time.monotonic() - began, timed_out=cut, blocked=cut)


def _screen(sandbox: Sandbox, call: ToolCall, timeout: float, limits: Limits) -> ToolResult:
    began = time.monotonic()
    return ToolResult.of_text(render(sandbox.terminal()), 0, time.monotonic() - began)


def _file_action(tool: str, path: str, action: Callable[[], ToolResult]) -> ToolResult:
    """Returns what `action` returns, with its duration; an error met inside the sandbox is a result too."""
    began = time.monotonic()
    try:
        result = action()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        result = ToolResult.of_text(f"{tool}: {path}: {reason}\n", 1, 0.0)
    return replace(result, duration=time.monotonic() - began)


def _result(outcome: Outcome) -> ToolResult:
    """Returns what the caller sees of an outcome."""
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
