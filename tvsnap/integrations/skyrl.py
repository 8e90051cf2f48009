"""SkyRL's environment on tvsnap."""

from tvsnap.plugins.harnesses.skyrl import TerminalEnv

__all__ = ["TerminalEnv"]
