"""Agents that do tasks through tvsnap."""

from tvsnap.plugins.training.agents import DONE, Agents, command_in
from tvsnap.plugins.training.branching import Branches
from tvsnap.plugins.training.played import Call, Played, trajectories
from tvsnap.plugins.training.waiting import Stragglers

__all__ = ["DONE", "Agents", "Branches", "Call", "Played", "Stragglers", "command_in", "trajectories"]
