"""Rollout files: recorded rollouts as JSON Lines, one rollout a line.

A line is `{"task": str, "rollout": str, "image": str (optional), "database": str (optional), "calls": [{"name": str,
"arguments": object, "timeout": seconds (optional)}]}`. Keys that are not named here are kept.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tvsnap.model.arguments import LONGEST, check_text
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import UsageError

STDIN = "-"  # the name that stands for standard input

_ROLLOUT_KEYS = {"task", "rollout", "image", "calls"}
_SQL_TOOLS = ("sql", "schema")
_CALL_KEYS = {"name", "arguments", "timeout"}


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call of a rollout file."""

    call: ToolCall  # the tool's name and arguments
    timeout: float | None = None  # seconds; None if the file names none
    extra: Mapping[str, Any] = field(default_factory=dict)  # keys of the line that tvsnap does not use


@dataclass(frozen=True, slots=True)
class PlannedRollout:
    """One line of a rollout file."""

    task: str  # the task it belongs to
    rollout: str  # its name within the task
    image: str | None  # its image; None if it names none
    calls: tuple[PlannedCall, ...]  # its calls, in order
    # Keys of the line that tvsnap does not use, except `database`: the one for its SQL calls
    extra: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""  # file and line: its origin; empty and 0 if it was not read from a file
    line: int = 0

    def made(self, step: PlannedCall) -> ToolCall:
        """Returns the tool call of one of its steps: an SQL call that names no database uses the rollout's."""
        call, database = step.call, self.extra.get("database")
        if call.name not in _SQL_TOOLS or "database" in call.arguments or not isinstance(database, str):
            return call
        return ToolCall(call.name, {**call.arguments, "database": database})


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line that is no rollout."""

    file: str  # its name, as given
    line: int  # its number, from 1
    reason: str  # in words

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


def read_rollouts(files: Iterable[str | Path]) -> tuple[list[PlannedRollout], list[BrokenLine]]:
    """Reads rollout files; `-` is standard input.

    Returns:
        The rollouts in the order of the files and their lines, and the lines that could not be understood. Empty lines
        are neither.

    Raises:
        UsageError: a file cannot be read at all.
    """
    rollouts: list[PlannedRollout] = []
    broken: list[BrokenLine] = []
    for file in map(str, files):
        for number, line in _lines(file):
            try:
                rollouts.append(replace(parse_rollout(line), file=file, line=number))
            except ValueError as error:  # noqa: PERF203
                broken.append(BrokenLine(file, number, str(error)))
    return rollouts, broken


def parse_rollout(line: str | bytes) -> PlannedRollout:
    """Returns the rollout that a line describes; raises ValueError, with the reason in words, if it describes none."""
    if isinstance(line, bytes) and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError("not UTF-8: it begins as UTF-16 does")
    try:
        data = json.loads(line, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: byte {error.start + 1} is 0x{error.object[error.start]:02x}") from None
    except RecursionError:
        raise ValueError("no JSON that can be read: nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError(f"must be an object, is {_kind(data)}")
    if data.get("database") is not None:
        _get(data, "database", str)
    calls = _get(data, "calls", list)
    return PlannedRollout(
        task=_get(data, "task", str),
        rollout=_get(data, "rollout", str),
        image=_get(data, "image", str) if data.get("image") is not None else None,
        calls=tuple(_parse_call(index, call) for index, call in enumerate(calls)),
        extra={key: value for key, value in data.items() if key not in _ROLLOUT_KEYS},
    )


def _lines(file: str) -> Iterator[tuple[int, bytes]]:
    """Yields the lines that are not empty, each with its number."""
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if file == STDIN else open(file, "rb") as stream:
            yield from ((number, line) for number, line in enumerate(stream, 1) if line.strip())
    except OSError as error:
        raise UsageError(f"rollout file {file}: {error.strerror}") from None


def _parse_call(index: int, data: Any) -> PlannedCall:
    where = f"call {index}"
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be an object, is {_kind(data)}")
    name = _get(data, "name", str, where)
    if not name:
        raise ValueError(f'{where}: "name" is empty')
    timeout = data.get("timeout")
    if timeout is not None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise ValueError(f'{where}: "timeout" must be a number of seconds, is {_kind(timeout)}')
        if not timeout > 0:
            raise ValueError(f'{where}: "timeout" must be more than 0 s, is {timeout}')
        if timeout > LONGEST:
            raise ValueError(f'{where}: "timeout" must be at most {LONGEST} s, which is a year, is {timeout}')
    extra = {key: value for key, value in data.items() if key not in _CALL_KEYS}
    arguments = _get(data, "arguments", dict, where)
    return PlannedCall(ToolCall(name, arguments), None if timeout is None else float(timeout), extra)


def _get(data: Mapping[str, Any], key: str, kind: type, where: str = "") -> Any:
    prefix = f"{where}: " if where else ""
    if key not in data:
        raise ValueError(f'{prefix}"{key}" is missing')
    value = data[key]
    if not isinstance(value, kind):
        raise ValueError(f'{prefix}"{key}" must be {_KINDS[kind]}, is {_kind(value)}')
    if kind is str:
        try:
            check_text(value, f'{prefix}"{key}"')
        except UsageError as error:
            raise ValueError(str(error)) from None
    return value


_KINDS: Mapping[type, str] = {
    str: "a string",
    dict: "an object",
    list: "a list",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "null",
}


def _kind(value: object) -> str:
    return _KINDS[type(value)]


def _refuse_constant(name: str) -> float:
    raise ValueError(f"no JSON: {name} is no JSON number")


def select(
    rollouts: Sequence[PlannedRollout], *, tasks: Sequence[str] = (), limit: int | None = None
) -> list[PlannedRollout]:
    """Returns the rollouts whose task matches one of the patterns (as in `fix-*`; none means all), at most `limit`."""
    chosen = [r for r in rollouts if not tasks or any(fnmatchcase(r.task, pattern) for pattern in tasks)]
    return chosen if limit is None else chosen[:limit]
