"""Many servers as one."""

from tvsnap.plugins.fleet import AsyncFleet, AsyncFleetRollout, Fleet, FleetRollout, NodeInfo, ranking

__all__ = ["AsyncFleet", "AsyncFleetRollout", "Fleet", "FleetRollout", "NodeInfo", "ranking"]
