"""What is known of a call once it was executed."""

from __future__ import annotations

from dataclasses import dataclass

from tvsnap.engine.claiming.claims import Claim
from tvsnap.engine.lookup.grades import Grading
from tvsnap.engine.position import Position
from tvsnap.environments.tools import Tool
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.observations import Observation

SHORTEST_WAIT = 1e-6  # seconds: 0 stands for a wait that does not count


@dataclass(frozen=True, slots=True)
class Executed:
    """A call that has just been executed.

    Attributes:
        tool, call: what was called.
        timeout: seconds that it was given.
        result: what it returned.
        at: where it was called.
        before: how the sandbox looked before; None if nobody needed to know.
        claim: others wait for the result; None if nobody does.
        trouble: why the result may be this machine's doing and not the call's; None if it is not.
        age: seconds that the sandbox had been left to itself when the call began.
        ended: when the call ended, by time.monotonic().
        cancelled: it was ended before its time, by whoever made it.
        asked: what it asked of the network.
        lasts: seconds for which that answers others; None for ever.
        grading: how it grades; None if it does not.
        grade: the grade that it gave.
        looked_at: whether it is found out what it changed; else nothing of it is shared.
        looking_s: seconds of processor time that it took to look before it.
        reaching_s: seconds that it took to get the sandbox.
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
    ended: float = 0.0
    cancelled: bool = False
    asked: tuple[str, ...] = ()
    lasts: float | None = None
    grading: Grading | None = None
    grade: str | None = None
    looked_at: bool = True
    looking_s: float = 0.0
    reaching_s: float = 0.0

    @property
    def waited(self) -> float:
        """The wait that the result may rest on; 0 if nothing changed by itself before the call ended."""
        over = self.age + self.result.duration > self.at.quiet_s
        return max(self.age, SHORTEST_WAIT) if over else 0.0
