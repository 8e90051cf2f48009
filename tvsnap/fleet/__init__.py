"""Many servers as one: each task has its place, and rollouts of a server that is lost go on at another."""

from tvsnap.fleet.fleet import Fleet, FleetRollout, NodeInfo
from tvsnap.fleet.routing import ranking

__all__ = ["Fleet", "FleetRollout", "NodeInfo", "ranking"]
