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
    """The times at which a rollout began what then goes on by itself; waits that were only said count as well."""

    begun: list[float] = field(default_factory=list)
    waited: float = 0.0
    left: float = 0.0

    def enter(self, step: Step) -> tuple[float, ...]:
        """Returns the seconds since each; called when a call is made."""
        now = time.monotonic() + self.waited
        since = tuple(now - begun for begun in self.begun)
        if step.begins:
            self.begun.append(now)
        return since

    def leave(self) -> None:
        """Notes when a call has ended."""
        self.left = time.monotonic() + self.waited

    def resumed(self) -> Clock:
        """Returns the same for who goes on from the state that the last call led to, and in it has not waited yet."""
        later = time.monotonic() + self.waited - self.left
        return Clock([begun + later for begun in self.begun], self.waited)


@dataclass
class Place:
    """Where a rollout has come to."""

    sequence: Play
    state: str
    ledger: Ledger
    clock: Clock = field(default_factory=Clock)
    rollout: Rollout | None = None
    lost: bool = False
