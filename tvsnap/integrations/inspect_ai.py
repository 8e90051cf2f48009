"""Inspect's sandbox `tvsnap`."""

from tvsnap.plugins.harnesses.inspect_ai import TvsnapSandboxConfig, TvsnapSandboxEnvironment

__all__ = ["TvsnapSandboxConfig", "TvsnapSandboxEnvironment"]
