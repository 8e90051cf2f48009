"""Agents that do tasks through tvsnap."""

from tvsnap.plugins.training.agents import DONE, Agents, Branches, Call, Played, Stragglers, command_in, trajectories

__all__ = ["DONE", "Agents", "Branches", "Call", "Played", "Stragglers", "command_in", "trajectories"]
