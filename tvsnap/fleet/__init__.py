"""Many servers as one: each task has its place, and rollouts of a server that is lost go on at another."""

from tvsnap.fleet.awaited import AsyncFleet, AsyncFleetRollout
from tvsnap.fleet.fleet import Fleet
from tvsnap.fleet.nodes import NodeInfo
from tvsnap.fleet.rollout import FleetRollout
from tvsnap.fleet.routing import ranking

__all__ = ["AsyncFleet", "AsyncFleetRollout", "Fleet", "FleetRollout", "NodeInfo", "ranking"]
