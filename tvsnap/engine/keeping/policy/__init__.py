"""When to snapshot a state, and what to record, from what that costs on this machine."""

from tvsnap.engine.keeping.policy.balance import Balance
from tvsnap.engine.keeping.policy.costs import Costs
from tvsnap.engine.keeping.policy.snapshotting import BreakEven, Eager, Never, Policy, Rebuild, policy

__all__ = ["Balance", "BreakEven", "Costs", "Eager", "Never", "Policy", "Rebuild", "policy"]
