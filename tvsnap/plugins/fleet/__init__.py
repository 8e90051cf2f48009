"""Many servers as one: each task has its place, and rollouts of a server that is lost go on at another."""

from tvsnap.plugins.fleet.awaited import AsyncFleet, AsyncFleetRollout
from tvsnap.plugins.fleet.fleet import Fleet
from tvsnap.plugins.fleet.nodes import NodeInfo
from tvsnap.plugins.fleet.rollout import FleetRollout
from tvsnap.plugins.fleet.routing import ranking

__all__ = ["AsyncFleet", "AsyncFleetRollout", "Fleet", "FleetRollout", "NodeInfo", "ranking"]
