"""Where a rollout has come to, what it was shown on the way, and how long it has waited."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tests.fuzz.cases import Step
from tests.fuzz.compare import Ledger
from tvsnap import Rollout

Play = tuple[int, ...]


@dataclass
class Clock:
    """The times of the calls with which a rollout began what then goes on by itself, beginning and end of each; waits
    that were only said count as well.
    """

    begun: list[tuple[float, float]] = field(default_factory=list)
    waited: float = 0.0
    left: float = 0.0

    def enter(self, step: Step) -> tuple[tuple[float, float], ...]:
        """Returns the seconds since the beginning and the end of each; called when a call is made."""
        now = time.monotonic() + self.waited
        since = tuple((now - began, now - ended) for began, ended in self.begun)
        if step.begins:
            self.begun.append((now, now))
        return since

    def leave(self, step: Step) -> None:
        """Notes when a call has ended."""
        self.left = time.monotonic() + self.waited
        if step.begins:
            self.begun[-1] = (self.begun[-1][0], self.left)

    def resumed(self) -> Clock:
        """Returns the same for who goes on from the state that the last call led to, and in it has not waited yet."""
        later = time.monotonic() + self.waited - self.left
        return Clock([(began + later, ended + later) for began, ended in self.begun], self.waited)


@dataclass
class Place:
    """Where a rollout has come to."""

    sequence: Play
    state: str
    ledger: Ledger
    clock: Clock = field(default_factory=Clock)
    rollout: Rollout | None = None
    lost: bool = False
