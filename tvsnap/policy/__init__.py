"""When to snapshot a state, from what that costs on this machine."""

from tvsnap.policy.costs import Costs
from tvsnap.policy.snapshotting import BreakEven, Eager, Never, Policy, Rebuild, policy

__all__ = ["BreakEven", "Costs", "Eager", "Never", "Policy", "Rebuild", "policy"]
