"""What the cache costs the rollouts of one image, and what it saves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Balance:
    """What the cache has recently cost the rollouts of one image in this process, and what it has saved.

    Times are those that an idle machine would have taken. On a busy one, time that calls only waited counts less, and
    not at all where two threads want each processor: rollouts are then as fast as the processors, and a waiting call
    does not use them.

    Attributes:
        executed_s: seconds that executed calls took.
        recording_s: seconds of processor time that it took to find out and record the results of calls; without the
            threads that stop processes to compare them, which take about a quarter more.
        reaching_s: seconds that it took to get sandboxes into states to which answers had led.
        answered_s: seconds that the answered calls took when they were executed, and the start of a sandbox for each
            rollout whose first call was answered.
        trial_s: seconds that this process has left for finding out whether the cache pays.
    """

    executed_s: float = 0.0
    recording_s: float = 0.0
    reaching_s: float = 0.0
    answered_s: float = 0.0
    trial_s: float = 0.0

    def loss(self, share: float) -> float:
        """Returns the seconds that the cache has cost beyond its savings and a share of the time of executed calls.

        Args:
            share: of the time that executed calls took, 0 to 1.
        """
        return self.recording_s + self.reaching_s - self.answered_s - share * self.executed_s
