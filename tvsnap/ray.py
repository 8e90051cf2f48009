"""A server on each node of a Ray cluster, as one."""

from tvsnap.plugins.fleet.ray import Fleet

__all__ = ["Fleet"]
