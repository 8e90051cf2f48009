"""d3rlpy's CQL with a prior."""

from tvsnap.plugins.priors.cql import add_prior

__all__ = ["add_prior"]
