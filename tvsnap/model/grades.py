"""Verifiers of tasks, and the grades that they give to states."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tvsnap.model.arguments import check_seconds, check_text, check_type
from tvsnap.model.calls import Part, Source, ToolResult, digest
from tvsnap.model.errors import GradingFailed, UsageError

TIMEOUT = 60.0
"""Seconds that a verifier may take by default."""
_SHOWN = 500  # characters of a log in an error


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade that a verifier gives to a state.

    Attributes:
        reward: the reward; by default the mean of `tests`.
        tests: the results of the tests by name: 1.0 for passed, 0.0 for failed, or something in between.
        log: the verifier's output beyond its results.
        duration: seconds that it took when it was executed.
        source: `executed`; `hit` if the state had been graded before, `coalesced` if another rollout was grading it.
    """

    reward: float
    tests: Mapping[str, float] = field(default_factory=dict, hash=False)
    log: str = ""
    duration: float = 0.0
    source: Source = "executed"

    @classmethod
    def of(cls, value: object, log: str = "") -> Grade:
        """Returns the grade that a value stands for.

        Args:
            value: a grade; a number, which is the reward; the results of tests by name, each a number or a truth value,
                of which the reward is the mean; or both, as `{"reward": 0.5, "tests": {"builds": true}}`.
            log: the verifier's output, unless the value is a grade.

        Raises:
            GradingFailed: the value is none of these.
        """
        if isinstance(value, Grade):
            return value
        if isinstance(value, (bool, int, float)):
            return cls(_number(value, "the reward"), {}, log)
        if not isinstance(value, Mapping) or not value:
            raise GradingFailed(f"a verifier gives a number or the results of tests by name, not {value!r}")
        reward, results = None, value
        if isinstance(value.get("tests"), Mapping) and value.keys() <= {"reward", "tests"}:
            reward, results = value.get("reward"), value["tests"]
        tests = {str(name): _number(result, f"the test {name}") for name, result in results.items()}
        if reward is None and tests:
            reward = sum(tests.values()) / len(tests)
        return cls(_number(reward, "the reward"), tests, log)

    @classmethod
    def of_result(cls, result: ToolResult) -> Grade:
        """Returns the grade that is recorded as the result of a call, see `as_result`.

        Args:
            result: the result.
        """
        values = json.loads(result.parts[0].data)
        return cls(values["reward"], values["tests"], str(result.parts[1].data), result.duration, result.source)

    def as_result(self) -> ToolResult:
        """Returns it as the result of a call, the form in which it is recorded."""
        return ToolResult((self.verdict, Part.text(self.log)), 0, self.duration, source=self.source)

    @property
    def verdict(self) -> Part:
        """Reward and tests, without the log, which may differ from one execution to the next."""
        return Part.json({"reward": self.reward, "tests": dict(self.tests)})


@dataclass(frozen=True)
class Verifier:
    """Grades the state of a sandbox. It runs in a fork, which is ended afterwards.

    Attributes:
        check: a command for a fresh shell (`bash -c`). Its exit status is 0 even for a bad state, and the last line of
            its standard output is JSON: a number, the reward; the results of tests by name, of which the reward is the
            mean (`{"builds": true, "speed": 0.5}`); or both (`{"reward": 0.5, "tests": {...}}`). Or a function that
            takes the sandbox and returns one of these; it works in this process only, not through a server.
        files: the contents of files that are written before a command runs, by absolute path.
        timeout: seconds that a command may take.
        user: the user that runs a command and owns its files; by default root, from whom no agent can hide anything.
        version: that of a function: a text that is changed whenever the function is.
    """

    check: str | Callable[[Any], object]
    files: Mapping[str, str | bytes] = field(default_factory=dict, hash=False)
    timeout: float = TIMEOUT
    user: str = "root"
    version: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.check, str):
            check_text(self.check, "check")
        elif not callable(self.check):
            raise UsageError(f"check must be a command or a function that is given the sandbox, not {self.check!r}")
        elif not self.version or self.files:
            raise UsageError("a verifier that is a function needs a version, and no files: it can write them itself")
        if not all(isinstance(path, str) and path.startswith("/") for path in self.files):
            raise UsageError(f"files must be named by absolute paths, not {', '.join(map(repr, self.files))}")
        check_seconds(self.timeout, "timeout")

    @classmethod
    def of(cls, verifier: object) -> Verifier:
        """Returns a verifier as it is, and that of a text, which is its command.

        Args:
            verifier: a verifier, or a command.

        Raises:
            UsageError: `verifier` is neither.
        """
        if isinstance(verifier, str):
            return cls(verifier)
        return check_type(verifier, cls, "verifier")

    @property
    def name(self) -> str:
        """Its command, or the function's name, for people."""
        return self.check if isinstance(self.check, str) else f"{self.check.__module__}.{_name(self.check)}"

    @cached_property
    def digest(self) -> str:
        """The hash by which its grades are recorded; it depends on the contents of its files, too."""
        contents = [
            f"{path}\0{hashlib.sha256(_bytes(content)).hexdigest()}" for path, content in sorted(self.files.items())
        ]
        kind = "command" if isinstance(self.check, str) else "function"
        return digest("verifier", kind, self.name, self.version, self.user, *contents)

    @property
    def contents(self) -> Mapping[str, bytes]:
        """Its files as bytes, by path."""
        return {path: _bytes(content) for path, content in self.files.items()}


def read_grade(output: str, errors: str, exit_code: int | None) -> Grade:
    """Returns the grade that a verifier's command has printed.

    Args:
        output: its standard output.
        errors: its standard error.
        exit_code: its exit status; None if it timed out.

    Raises:
        GradingFailed: it did not end with status 0, or its last line is no grade.
    """
    log, _, last = output.rstrip("\n").rpartition("\n")
    printed = f"; it printed: {(output + errors)[-_SHOWN:]!r}"
    if exit_code is None:
        reason = "did not end in time (Verifier(timeout=...)), so that there is no grade"
        raise GradingFailed(f"the verifier {reason}{printed}")
    if exit_code != 0:
        raise GradingFailed(
            f"the verifier ended with status {exit_code}, so that there is no grade: it has to end with 0, also if "
            f"the reward is 0{printed}"
        )
    try:
        value = json.loads(last)
    except ValueError:
        raise GradingFailed(
            'the verifier\'s last line is not JSON, such as 0.5 or {"reward": 0.5}, so that there is no grade' + printed
        ) from None
    return Grade.of(value, (f"{log}\n" if log else "") + errors)


def _number(value: object, what: str) -> float:
    if not isinstance(value, (bool, int, float)) or not math.isfinite(value):
        raise GradingFailed(f"a verifier gave {value!r} for {what}, which is not a finite number")
    return float(value)


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)
