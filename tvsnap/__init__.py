"""tvsnap: a stateful tool-value cache for agents that act in containers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvsnap.async_cache import AsyncCache, AsyncRollout
    from tvsnap.cache import Cache
    from tvsnap.environments.base import Environment
    from tvsnap.environments.service import InnerService
    from tvsnap.environments.terminal import TerminalEnvironment
    from tvsnap.environments.tools import CallContext, Tool, ToolFailed, tool
    from tvsnap.environments.toolset import ToolEnvironment
    from tvsnap.graph import Graph
    from tvsnap.images import ImageStore
    from tvsnap.model.calls import Part, ToolCall, ToolResult
    from tvsnap.model.errors import (
        CheckpointFailed,
        InfrastructureError,
        MachineLacks,
        NotCheckpointable,
        NotFound,
        SandboxDied,
        SnapshotUnusable,
        StateLost,
        TvsnapError,
        UsageError,
    )
    from tvsnap.model.images import Image
    from tvsnap.model.limits import Budget, Limits
    from tvsnap.model.observations import Captures, FileChange, Observation, Outcome, Process, SnapshotInfo
    from tvsnap.model.stats import Stats
    from tvsnap.recording.policy import Policy
    from tvsnap.rollout import Rollout
    from tvsnap.sandboxes.protocol import Backend, Sandbox

# Imported when first used: `import tvsnap` itself costs next to nothing.
_MODULES = {
    "AsyncCache": "tvsnap.async_cache",
    "AsyncRollout": "tvsnap.async_cache",
    "Backend": "tvsnap.sandboxes.protocol",
    "Budget": "tvsnap.model.limits",
    "Cache": "tvsnap.cache",
    "Captures": "tvsnap.model.observations",
    "CheckpointFailed": "tvsnap.model.errors",
    "Environment": "tvsnap.environments.base",
    "FileChange": "tvsnap.model.observations",
    "Image": "tvsnap.model.images",
    "ImageStore": "tvsnap.images",
    "InfrastructureError": "tvsnap.model.errors",
    "Limits": "tvsnap.model.limits",
    "MachineLacks": "tvsnap.model.errors",
    "NotCheckpointable": "tvsnap.model.errors",
    "NotFound": "tvsnap.model.errors",
    "Observation": "tvsnap.model.observations",
    "Outcome": "tvsnap.model.observations",
    "Process": "tvsnap.model.observations",
    "Rollout": "tvsnap.rollout",
    "Sandbox": "tvsnap.sandboxes.protocol",
    "SandboxDied": "tvsnap.model.errors",
    "SnapshotInfo": "tvsnap.model.observations",
    "SnapshotUnusable": "tvsnap.model.errors",
    "StateLost": "tvsnap.model.errors",
    "Stats": "tvsnap.model.stats",
    "Tool": "tvsnap.environments.tools",
    "tool": "tvsnap.environments.tools",
    "CallContext": "tvsnap.environments.tools",
    "ToolFailed": "tvsnap.environments.tools",
    "ToolEnvironment": "tvsnap.environments.toolset",
    "TerminalEnvironment": "tvsnap.environments.terminal",
    "InnerService": "tvsnap.environments.service",
    "Part": "tvsnap.model.calls",
    "Policy": "tvsnap.recording.policy",
    "Graph": "tvsnap.graph",
    "ToolCall": "tvsnap.model.calls",
    "ToolResult": "tvsnap.model.calls",
    "TvsnapError": "tvsnap.model.errors",
    "UsageError": "tvsnap.model.errors",
}

__all__ = [
    "AsyncCache",
    "AsyncRollout",
    "Backend",
    "Budget",
    "Cache",
    "CallContext",
    "Captures",
    "CheckpointFailed",
    "Environment",
    "FileChange",
    "Graph",
    "Image",
    "ImageStore",
    "InfrastructureError",
    "InnerService",
    "Limits",
    "MachineLacks",
    "NotCheckpointable",
    "NotFound",
    "Observation",
    "Outcome",
    "Part",
    "Policy",
    "Process",
    "Rollout",
    "Sandbox",
    "SandboxDied",
    "SnapshotInfo",
    "SnapshotUnusable",
    "StateLost",
    "Stats",
    "TerminalEnvironment",
    "Tool",
    "ToolCall",
    "ToolEnvironment",
    "ToolFailed",
    "ToolResult",
    "TvsnapError",
    "UsageError",
    "tool",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
