"""The position of a rollout in the graph."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from tvsnap.host.waiting import NO_LAG, Lag
from tvsnap.model.calls import ToolCall, next_state


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a rollout.

    Attributes:
        depth: the number of calls that changed the state between the root and here.
        private: the reason why nothing is shared from here on; None if it is.
        recorded: whether the graph knows the state.
        unshared: the reason why the result of the last call is not shared; None if it is.
        quiet_s: seconds after its arrival during which the state does not change by itself; see `host.waiting`.
        since: the time of its arrival, by time.monotonic(); earlier if answers made waiting unnecessary.
        lag: how much longer it has waited in earlier states than the records say that led it here, if something still
            runs by itself.
        shown: the longest wait, in seconds, of an answer that it has got here.
        course: identifies the calls that led there, but not their aftermaths; the same for all rollouts that make the
            same calls. Empty at the beginning.
    """

    state: str
    depth: int = 0
    private: str | None = None
    recorded: bool = True
    unshared: str | None = None
    quiet_s: float = math.inf
    since: float = 0.0
    course: str = ""
    lag: Lag = NO_LAG
    shown: float = 0.0

    @property
    def waited(self) -> float:
        """The seconds for which the rollout has waited in the state; 0 if that never counts."""
        return 0.0 if self.quiet_s == math.inf else max(0.0, time.monotonic() - self.since)

    def course_after(self, call: ToolCall) -> str:
        """Returns the course after a call that changes something."""
        return next_state(self.course or self.state, call)

    def pass_time(self, seconds: float) -> Position:
        """Returns the same position some seconds later."""
        return self if self.quiet_s == math.inf else replace(self, since=self.since - seconds)
