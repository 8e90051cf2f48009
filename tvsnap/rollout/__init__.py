"""Rollouts: where one stands, what answers its calls, and how they are executed."""

from tvsnap.rollout.rollout import DEFAULT_TIMEOUT, OUTSIDE, Rollout

__all__ = ["DEFAULT_TIMEOUT", "OUTSIDE", "Rollout"]
