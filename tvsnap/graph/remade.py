"""What a recorded call comes to when it is made again, and how that differs from the record."""

from __future__ import annotations

from dataclasses import dataclass

from tvsnap.graph.model import Edge
from tvsnap.model.calls import ToolResult


@dataclass(frozen=True, slots=True)
class Remade:
    """The result of a recorded call that was made again.

    Attributes:
        result: what it returned.
        digest: of what it left behind; None if that is not compared.
    """

    result: ToolResult
    digest: str | None = None

    def difference(self, edge: Edge) -> str | None:
        """Returns in words how it differs from the record; None if it does not.

        Args:
            edge: the recorded call.
        """
        if not self.result.same_value(edge.result):
            return difference(edge.result, self.result)
        return difference(edge.result, self.result) if edge.changed and edge.digest != self.digest else None


def difference(recorded: ToolResult, seen: ToolResult) -> str:
    """Returns in words how two executions of a call differ: `printed "b" where "a" was recorded (line 3)`.

    If their results are the same, they differ in what they left behind.
    """
    if recorded.same_value(seen):
        return "left something else behind"
    if recorded.timed_out != seen.timed_out:
        return "timed out" if seen.timed_out else "did not time out"
    if recorded.exit_code != seen.exit_code:
        return f"ended with status {seen.exit_code} instead of {recorded.exit_code}"
    before, after = recorded.output.splitlines(), seen.output.splitlines()
    for number, (old, new) in enumerate(zip(before, after, strict=False), 1):
        if old != new:
            return f"printed {_short(new)} where {_short(old)} was recorded (line {number})"
    if len(before) != len(after):
        return f"printed {len(after)} lines where {len(before)} were recorded"
    return "printed something else"


def _short(text: str) -> str:
    return f'"{text}"' if len(text) <= 60 else f'"{text[:57]}..."'
