"""Policies: they decide which states get a snapshot, from the costs on this machine."""

from tvsnap.engine.keeping.policy.costs import Costs
from tvsnap.engine.keeping.policy.snapshotting import Default, Eager, Never, Policy, Rebuild, policy

__all__ = ["Costs", "Default", "Eager", "Never", "Policy", "Rebuild", "policy"]
