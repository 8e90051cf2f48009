"""SAC of Stable-Baselines3 with a prior."""

from tvsnap.plugins.priors.sac import PriorSAC

__all__ = ["PriorSAC"]
