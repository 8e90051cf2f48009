"""tvsnap: a stateful tool-value cache for agents that act in containers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvsnap.aio.cache import AsyncCache
    from tvsnap.aio.forks import AsyncForks
    from tvsnap.aio.images import AsyncImageStore
    from tvsnap.aio.rollout import AsyncRollout
    from tvsnap.aio.sandbox import AsyncSandbox
    from tvsnap.cache import Cache
    from tvsnap.client.client import Client, connect
    from tvsnap.engine.keeping.policy import Balance, Costs, Policy, Rebuild
    from tvsnap.engine.supply.forks import Forks
    from tvsnap.engine.supply.rebuilding import Remade
    from tvsnap.engine.supply.recipes import ImageSource
    from tvsnap.environments.base import Environment
    from tvsnap.environments.files import Fetched
    from tvsnap.environments.service import InnerService
    from tvsnap.environments.terminal import TerminalEnvironment
    from tvsnap.environments.tools import CallContext, Tool, ToolFailed, tool
    from tvsnap.environments.toolset import ToolEnvironment
    from tvsnap.graph import Edge, Graph
    from tvsnap.host.load import Load
    from tvsnap.host.trees import TreeItem
    from tvsnap.images import BuildProgress, ImageBuildError, ImageNotFound, ImageSpecError, ImageStore
    from tvsnap.model.calls import Part, ToolCall, ToolResult
    from tvsnap.model.errors import (
        CallCancelled,
        CheckpointFailed,
        ForkFailed,
        InfrastructureError,
        MachineLacks,
        NotCheckpointable,
        NotFound,
        NotRestorable,
        SandboxDied,
        SnapshotUnusable,
        StateLost,
        TvsnapError,
        UsageError,
    )
    from tvsnap.model.images import Image, ImageLimits, Timeouts
    from tvsnap.model.limits import Budget, Limits
    from tvsnap.model.network import Network, Traffic
    from tvsnap.model.observations import (
        Captures,
        Command,
        FileChange,
        Observation,
        Outcome,
        Process,
        ReapReport,
        Service,
        SnapshotInfo,
        TerminalBytes,
    )
    from tvsnap.model.services import HealthCheck, ImageService, Services
    from tvsnap.model.stats import Stats
    from tvsnap.model.task import Task, TaskPhase, TaskStep
    from tvsnap.rollout import Rollout
    from tvsnap.sandboxes.network.settings import NetworkSettings
    from tvsnap.sandboxes.protocol import Backend, Sandbox

# Imported when first used: `import tvsnap` itself costs next to nothing.
_MODULES = {
    "AsyncCache": "tvsnap.aio.cache",
    "AsyncForks": "tvsnap.aio.forks",
    "AsyncImageStore": "tvsnap.aio.images",
    "AsyncRollout": "tvsnap.aio.rollout",
    "AsyncSandbox": "tvsnap.aio.sandbox",
    "Backend": "tvsnap.sandboxes.protocol",
    "Balance": "tvsnap.engine.keeping.policy",
    "Budget": "tvsnap.model.limits",
    "BuildProgress": "tvsnap.images",
    "Cache": "tvsnap.cache",
    "CallCancelled": "tvsnap.model.errors",
    "CallContext": "tvsnap.environments.tools",
    "Captures": "tvsnap.model.observations",
    "CheckpointFailed": "tvsnap.model.errors",
    "Client": "tvsnap.client.client",
    "Command": "tvsnap.model.observations",
    "Costs": "tvsnap.engine.keeping.policy",
    "Edge": "tvsnap.graph",
    "Environment": "tvsnap.environments.base",
    "Fetched": "tvsnap.environments.files",
    "FileChange": "tvsnap.model.observations",
    "ForkFailed": "tvsnap.model.errors",
    "Forks": "tvsnap.engine.supply.forks",
    "Graph": "tvsnap.graph",
    "HealthCheck": "tvsnap.model.services",
    "Image": "tvsnap.model.images",
    "ImageBuildError": "tvsnap.images",
    "ImageLimits": "tvsnap.model.images",
    "ImageNotFound": "tvsnap.images",
    "ImageService": "tvsnap.model.services",
    "ImageSource": "tvsnap.engine.supply.recipes",
    "ImageSpecError": "tvsnap.images",
    "ImageStore": "tvsnap.images",
    "InfrastructureError": "tvsnap.model.errors",
    "InnerService": "tvsnap.environments.service",
    "Limits": "tvsnap.model.limits",
    "Load": "tvsnap.host.load",
    "MachineLacks": "tvsnap.model.errors",
    "Network": "tvsnap.model.network",
    "NetworkSettings": "tvsnap.sandboxes.network.settings",
    "NotCheckpointable": "tvsnap.model.errors",
    "NotFound": "tvsnap.model.errors",
    "NotRestorable": "tvsnap.model.errors",
    "Observation": "tvsnap.model.observations",
    "Outcome": "tvsnap.model.observations",
    "Part": "tvsnap.model.calls",
    "Policy": "tvsnap.engine.keeping.policy",
    "Process": "tvsnap.model.observations",
    "ReapReport": "tvsnap.model.observations",
    "Rebuild": "tvsnap.engine.keeping.policy",
    "Remade": "tvsnap.engine.supply.rebuilding",
    "Rollout": "tvsnap.rollout",
    "Sandbox": "tvsnap.sandboxes.protocol",
    "SandboxDied": "tvsnap.model.errors",
    "Service": "tvsnap.model.observations",
    "Services": "tvsnap.model.services",
    "SnapshotInfo": "tvsnap.model.observations",
    "SnapshotUnusable": "tvsnap.model.errors",
    "StateLost": "tvsnap.model.errors",
    "Stats": "tvsnap.model.stats",
    "Task": "tvsnap.model.task",
    "TaskPhase": "tvsnap.model.task",
    "TaskStep": "tvsnap.model.task",
    "TerminalBytes": "tvsnap.model.observations",
    "TerminalEnvironment": "tvsnap.environments.terminal",
    "Timeouts": "tvsnap.model.images",
    "Tool": "tvsnap.environments.tools",
    "ToolCall": "tvsnap.model.calls",
    "ToolEnvironment": "tvsnap.environments.toolset",
    "ToolFailed": "tvsnap.environments.tools",
    "ToolResult": "tvsnap.model.calls",
    "Traffic": "tvsnap.model.network",
    "TreeItem": "tvsnap.host.trees",
    "TvsnapError": "tvsnap.model.errors",
    "UsageError": "tvsnap.model.errors",
    "connect": "tvsnap.client.client",
    "tool": "tvsnap.environments.tools",
}

__all__ = [
    "AsyncCache",
    "AsyncForks",
    "AsyncImageStore",
    "AsyncRollout",
    "AsyncSandbox",
    "Backend",
    "Balance",
    "Budget",
    "BuildProgress",
    "Cache",
    "CallCancelled",
    "CallContext",
    "Captures",
    "CheckpointFailed",
    "Client",
    "Command",
    "Costs",
    "Edge",
    "Environment",
    "Fetched",
    "FileChange",
    "ForkFailed",
    "Forks",
    "Graph",
    "HealthCheck",
    "Image",
    "ImageBuildError",
    "ImageLimits",
    "ImageNotFound",
    "ImageService",
    "ImageSource",
    "ImageSpecError",
    "ImageStore",
    "InfrastructureError",
    "InnerService",
    "Limits",
    "Load",
    "MachineLacks",
    "Network",
    "NetworkSettings",
    "NotCheckpointable",
    "NotFound",
    "NotRestorable",
    "Observation",
    "Outcome",
    "Part",
    "Policy",
    "Process",
    "ReapReport",
    "Rebuild",
    "Remade",
    "Rollout",
    "Sandbox",
    "SandboxDied",
    "Service",
    "Services",
    "SnapshotInfo",
    "SnapshotUnusable",
    "StateLost",
    "Stats",
    "Task",
    "TaskPhase",
    "TaskStep",
    "TerminalBytes",
    "TerminalEnvironment",
    "Timeouts",
    "Tool",
    "ToolCall",
    "ToolEnvironment",
    "ToolFailed",
    "ToolResult",
    "Traffic",
    "TreeItem",
    "TvsnapError",
    "UsageError",
    "connect",
    "tool",
]


if not TYPE_CHECKING:  # who checks types would take any name at all for one of ours

    def __getattr__(name: str) -> Any:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
