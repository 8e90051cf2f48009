"""OpenHands' workspace on tvsnap, and its tool at a shell."""

from tvsnap.plugins.harnesses.openhands import (
    SandboxTerminalAction,
    SandboxTerminalObservation,
    SandboxTerminalTool,
    TvsnapWorkspace,
)

__all__ = ["SandboxTerminalAction", "SandboxTerminalObservation", "SandboxTerminalTool", "TvsnapWorkspace"]
