"""When to take a snapshot of a state, and what to record, depending on the costs on this machine."""

from tvsnap.engine.keeping.policy.balance import Balance
from tvsnap.engine.keeping.policy.costs import Costs
from tvsnap.engine.keeping.policy.snapshotting import BreakEven, Eager, Never, Policy, Rebuild, policy

__all__ = ["Balance", "BreakEven", "Costs", "Eager", "Never", "Policy", "Rebuild", "policy"]
