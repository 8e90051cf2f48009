"""What the cache costs the rollouts of one image, and what it saves."""

from __future__ import annotations

from dataclasses import dataclass

from tvsnap.model.tuning import DEFAULT_TUNING


@dataclass(frozen=True, slots=True)
class Balance:
    """What the cache has lately cost the rollouts of one image in this process, and what it has saved.

    All times are seconds of rollouts: how much longer or shorter rollouts take. As far as processors are idle, that is
    the time for which callers wait. As far as they are busy, it is the time of processors, whoever waits, times the
    rollouts that want each processor. What was a minute ago counts about a third.

    Attributes:
        cost_s: what it took to find out and record the results of calls, to take snapshots, to make sandboxes in states
            to which answers had led, and to wait for other rollouts.
        spared_s: what the answered calls took when they were executed, and the start of a sandbox for each rollout
            whose first call was answered.
        lasted_s: seconds that the rollouts lasted, thinking included.
        trial_s: seconds that it may cost until it is known whether it pays.
        share: of the time that rollouts lasted, 0 to 1, that it may cost beyond what it saves, as the cache is tuned.
    """

    cost_s: float = 0.0
    spared_s: float = 0.0
    lasted_s: float = 0.0
    trial_s: float = 0.0
    share: float = DEFAULT_TUNING.record_share

    def pays(self, share: float) -> bool:
        """Returns whether the cache costs hardly more than it saves.

        Args:
            share: of the time that rollouts lasted, 0 to 1, which it may cost beyond what it saves.
        """
        return self.cost_s <= self.spared_s + self.trial_s + share * self.lasted_s
