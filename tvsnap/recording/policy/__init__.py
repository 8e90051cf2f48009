"""When to snapshot a state, and what to record, from what that costs on this machine."""

from tvsnap.recording.policy.balance import Balance
from tvsnap.recording.policy.costs import Costs
from tvsnap.recording.policy.snapshotting import BreakEven, Eager, Never, Policy, Rebuild, policy

__all__ = ["Balance", "BreakEven", "Costs", "Eager", "Never", "Policy", "Rebuild", "policy"]
