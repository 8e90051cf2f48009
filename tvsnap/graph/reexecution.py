"""Results of recorded calls that were made again, and their differences from the records."""

from __future__ import annotations

from dataclasses import dataclass

from tvsnap.graph.model import Edge
from tvsnap.model.calls import ToolResult


@dataclass(frozen=True, slots=True)
class Remade:
    """The result of a recorded call that was made again.

    Attributes:
        result: the new result.
        digest: that of the sandbox after the call; None if it is not compared.
    """

    result: ToolResult
    digest: str | None = None

    def difference(self, edge: Edge) -> str | None:
        """Returns the difference from the record in words; None if there is none.

        Args:
            edge: the recorded call.
        """
        if not self.result.same_value(edge.result):
            return difference(edge.result, self.result)
        return difference(edge.result, self.result) if edge.changed and edge.digest != self.digest else None


def difference(recorded: ToolResult, again: ToolResult) -> str:
    """Returns the difference of two executions of a call in words: `printed "b" where "a" was recorded (line 3)`.

    If their results are the same, their aftermaths differ.
    """
    if recorded.same_value(again):
        return "left something else behind"
    if recorded.timed_out != again.timed_out:
        return "timed out" if again.timed_out else "did not time out"
    if recorded.exit_code != again.exit_code:
        return f"ended with status {again.exit_code} instead of {recorded.exit_code}"
    before, after = recorded.output.splitlines(), again.output.splitlines()
    for number, (old, new) in enumerate(zip(before, after, strict=False), 1):
        if old != new:
            return f"printed {_short(new)} where {_short(old)} was recorded (line {number})"
    if len(before) != len(after):
        return f"printed {len(after)} lines where {len(before)} were recorded"
    return "printed something else"


def _short(text: str) -> str:
    return f'"{text}"' if len(text) <= 60 else f'"{text[:57]}..."'
