"""verifiers' tasks on tvsnap."""

from tvsnap.plugins.harnesses.verifiers import (
    TerminalConfig,
    TerminalData,
    TerminalState,
    TerminalTask,
    TerminalTasksetConfig,
    TerminalTools,
    TerminalToolsConfig,
)

__all__ = [
    "TerminalConfig",
    "TerminalData",
    "TerminalState",
    "TerminalTask",
    "TerminalTasksetConfig",
    "TerminalTools",
    "TerminalToolsConfig",
]
