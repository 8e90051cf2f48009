"""Where a rollout stands in the graph."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from tvsnap.model.calls import ToolCall, next_state


@dataclass(frozen=True, slots=True)
class Position:
    """Where a rollout stands.

    Attributes:
        state: the state.
        depth: how many calls that changed the state it is away from its root.
        private: why nothing is shared from here on; None if it is.
        recorded: whether the graph knows the state.
        unshared: why the result of the last call is not shared; None if it is.
        quiet_s: seconds, from when it came there, in which the state does not change by itself; see `host.waiting`.
        since: when it came there, by time.monotonic(); earlier if waiting was made unnecessary by answers.
        course: names the calls that led there, whatever they left behind; the same for all rollouts that make the same
            calls. Empty where it began.
    """

    state: str
    depth: int = 0
    private: str | None = None
    recorded: bool = True
    unshared: str | None = None
    quiet_s: float = math.inf
    since: float = 0.0
    course: str = ""

    @property
    def waited(self) -> float:
        """Seconds that the state has been left to itself, as the rollout has it; 0 where that never counts."""
        return 0.0 if self.quiet_s == math.inf else max(0.0, time.monotonic() - self.since)

    def course_after(self, call: ToolCall) -> str:
        """Returns the course of what a call that changes something leads to."""
        return next_state(self.course or self.state, call)

    def pass_time(self, seconds: float) -> Position:
        """Returns the same position so many seconds later."""
        return self if self.quiet_s == math.inf else replace(self, since=self.since - seconds)
