"""OpenEnv's environment on tvsnap."""

from tvsnap.plugins.harnesses.openenv import (
    TerminalAction,
    TerminalEnvironment,
    TerminalObservation,
    TerminalState,
    environment_factory,
)

__all__ = ["TerminalAction", "TerminalEnvironment", "TerminalObservation", "TerminalState", "environment_factory"]
