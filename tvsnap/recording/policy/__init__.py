"""When to snapshot a state, from what that costs on this machine."""

from tvsnap.recording.policy.costs import Costs
from tvsnap.recording.policy.snapshotting import BreakEven, Eager, Never, Policy, Rebuild, policy

__all__ = ["BreakEven", "Costs", "Eager", "Never", "Policy", "Rebuild", "policy"]
