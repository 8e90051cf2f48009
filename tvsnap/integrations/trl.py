"""TRL's environment on tvsnap."""

from tvsnap.plugins.harnesses.trl import TerminalEnvironment, environment_factory

__all__ = ["TerminalEnvironment", "environment_factory"]
