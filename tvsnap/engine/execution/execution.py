"""The record of a call's execution."""

from __future__ import annotations

from dataclasses import dataclass

from tvsnap.engine.claiming.claims import Claim
from tvsnap.engine.lookup.grades import Grading
from tvsnap.engine.position import Position
from tvsnap.environments.tools import Tool
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import DependencyFailed, UsageError
from tvsnap.model.observations import Observation

TOOL_ERRORS = (DependencyFailed, UsageError)
"""The errors that the code of a tool raises for reasons that do not lie in the sandbox."""
SHORTEST_WAIT = 1e-6  # seconds: 0 stands for a wait that does not count
LONGEST_WAIT = 1e9  # seconds: JSON has no infinity


@dataclass(frozen=True, slots=True)
class Execution:
    """A call that has just been executed.

    Attributes:
        timeout: the seconds that it was allowed.
        at: the position in which it was called.
        before: the sandbox as observed before the call; None if that was not needed.
        claim: the right by which it was executed; None if nobody waits for the result.
        trouble: the reason why the result may be due to this machine and not to the call; None if there is none.
        age: seconds for which nothing had been done in the sandbox when the call began.
        began: the `file_time` at the begin of the call, nanoseconds since the epoch; 0 if no sandbox executed it.
        ended: the time at which the call ended, by time.monotonic().
        cancelled: its caller ended it early.
        asked: its requests to the network.
        lasts: seconds for which a result that depends on the network answers others; None for ever.
        grading: the way in which it grades; None if it does not.
        grade: the grade that it gave.
        still: the shortest and the longest time, in seconds, for which nothing could have been done in the sandbox so
            that the call began in the same; None if that is not known.
        held_up: the delay by the load of the machine, in words; None if there was none.
    """

    tool: Tool
    call: ToolCall
    timeout: float
    result: ToolResult
    at: Position
    before: Observation | None
    claim: Claim | None
    trouble: str | None = None
    age: float = 0.0
    began: int = 0
    ended: float = 0.0
    cancelled: bool = False
    asked: tuple[str, ...] = ()
    lasts: float | None = None
    grading: Grading | None = None
    grade: str | None = None
    held_up: str | None = None
    still: tuple[float, float] | None = None

    @property
    def waited(self) -> float:
        """The wait on which the result may depend; 0 if nothing changed by itself before the call ended."""
        over = self.age + self.result.duration > self.at.quiet_s
        return max(self.age, SHORTEST_WAIT) if over else 0.0

    @property
    def alike(self) -> tuple[float, float] | None:
        """The shortest and the longest wait after which the call would have found the same, until its end."""
        if self.still is None or not self.waited:
            return None
        earliest, latest = self.still[0], min(self.still[1] - self.result.duration, LONGEST_WAIT)
        return (max(earliest, SHORTEST_WAIT), latest) if earliest <= self.age <= latest else None
