"""Grades: calls that may have to be executed several times before their result answers others.

Otherwise, a verifier that fails now and then would give its first grade to all rollouts that come to the state. A grade
consists of the call's exit status and the contents of some files; its output may differ between executions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvsnap.model.calls import ToolResult, canonical_json
from tvsnap.model.errors import UsageError
from tvsnap.sandboxes.protocol import Sandbox

_SHOWN = 200  # bytes of a file up to which a grade contains its text, and not its digest
_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class Grading:
    """The way in which a call grades.

    Attributes:
        paths: absolute paths of the files in which it leaves its grade.
        executions: the number of times that it is executed before it answers others.
    """

    paths: tuple[str, ...]
    executions: int = 1

    @classmethod
    def of(cls, paths: Sequence[str], executions: int) -> Grading:
        """Returns the way in which a call with an argument `grade` grades; raises UsageError if that makes no sense."""
        if isinstance(paths, str) or not all(isinstance(path, str) and path.startswith("/") for path in paths):
            raise UsageError(f"grade must be a list of absolute paths of files inside, not {paths!r}")
        return cls(tuple(paths), executions)

    def read(self, sandbox: Sandbox, result: ToolResult) -> str:
        """Returns, as text, the grade that a call has just given in a sandbox."""
        parts: dict[str, object] = {"exit_code": result.exit_code}
        for path in self.paths:
            try:
                data = sandbox.read_file(path, limit=_MOST)
            except OSError:
                parts[path] = None
                continue
            shown = data.decode(errors="replace").strip() if len(data) <= _SHOWN else None
            parts[path] = hashlib.sha256(data).hexdigest() if shown is None else shown
        return canonical_json(parts)

    def is_settled(self, counts: Mapping[str, int], grade: str | None) -> bool:
        """Returns whether a grade may answer others: it was given often enough, and no other grade ever was.

        `counts`: how often each grade was given; `grade` is None if it is not known.
        """
        return self.executions <= 1 or (
            grade is not None and counts == {grade: counts.get(grade, 0)} and counts[grade] >= self.executions
        )

    def not_yet(self, counts: Mapping[str, int], grade: str, held_up: str | None) -> str | None:
        """Returns why a grade that was just given is not to be shared yet; None if it is.

        A grade that a busy machine may have lowered is shared once a second execution has given it, too.

        Args:
            counts: how often each grade was given before.
            grade: the grade.
            held_up: the delay of the execution by the load of the machine, in words; None if there was none.
        """
        others = [other for other in counts if other != grade]
        if self.executions <= 1 and held_up and not counts.get(grade) and not _is_best(grade):
            return f"the machine may have lowered its grade, which a second execution decides: it {held_up}"
        if self.executions > 1 and others:
            return f"its executions came to different grades: {grade} and {others[0]}"
        number = counts.get(grade, 0) + 1
        if number < self.executions:
            return f"execution {number} of the {self.executions} that a grade has before it is shared"
        return None


def _is_best(grade: str) -> bool:
    """Returns whether a grade is a full reward, which the load of a machine never causes."""
    parts = json.loads(grade)
    if "reward" in parts:
        return bool(parts["reward"] >= 1)
    rewards = [reward for path, text in parts.items() if path != "exit_code" and (reward := _number(text)) is not None]
    return min(rewards) >= 1 if rewards else parts["exit_code"] == 0


def _number(text: object) -> float | None:
    """Returns the least number in the contents of a file with a reward; None if there is none."""
    try:
        value = json.loads(str(text))
    except ValueError:
        return None
    values = list(value.values()) if isinstance(value, dict) else [value]
    numbers = [float(each) for each in values if isinstance(each, (int, float))]
    return min(numbers) if numbers else None
