"""tvsnap: a stateful tool-value cache for agents that act in containers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvsnap.aio.cache import AsyncCache
    from tvsnap.aio.images import AsyncImageStore
    from tvsnap.aio.rollout import AsyncRollout
    from tvsnap.aio.sandbox import AsyncSandbox
    from tvsnap.cache import Cache
    from tvsnap.client.client import Client, connect
    from tvsnap.client.events import Event
    from tvsnap.client.terminals import Terminal
    from tvsnap.engine.keeping.policy import Costs, Policy, Rebuild
    from tvsnap.engine.supply.recipes import ImageSource
    from tvsnap.environments.base import Environment
    from tvsnap.environments.service import InnerService
    from tvsnap.environments.terminal import TerminalEnvironment
    from tvsnap.environments.tool_schemas import tool_schemas
    from tvsnap.environments.tools import CallContext, Tool, ToolFailed, tool
    from tvsnap.environments.toolset import ToolEnvironment
    from tvsnap.graph import Edge, Graph
    from tvsnap.graph.reexecution import Remade
    from tvsnap.host.load import Load
    from tvsnap.host.trees import TreeItem
    from tvsnap.images import BuildProgress, ImageBuildError, ImageNotFound, ImageSpecError, ImageStore
    from tvsnap.model.calls import Part, ToolCall, ToolResult
    from tvsnap.model.credit import CallValue, Credit, StateValue, TaskValues
    from tvsnap.model.errors import (
        CallCancelled,
        CheckpointFailed,
        DependencyFailed,
        ForkFailed,
        GradingFailed,
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
    from tvsnap.model.fetched import Fetched
    from tvsnap.model.forks import AsyncForks, Forks
    from tvsnap.model.grades import Grade, Verifier
    from tvsnap.model.images import Image, ImageLimits, Timeouts
    from tvsnap.model.limits import Budget, Limits
    from tvsnap.model.network import Network, Traffic
    from tvsnap.model.observations import (
        Captures,
        Command,
        FileChange,
        FolderEntry,
        FolderListing,
        Observation,
        Outcome,
        Process,
        ReapReport,
        Service,
        SnapshotInfo,
        TerminalBytes,
    )
    from tvsnap.model.services import HealthCheck, ImageService, Services
    from tvsnap.model.shares import Share
    from tvsnap.model.stats import Stats
    from tvsnap.model.task import Task, TaskPhase, TaskStep
    from tvsnap.rollout import Rollout
    from tvsnap.sandboxes.network.settings import NetworkSettings
    from tvsnap.sandboxes.protocol import Backend, Sandbox

# Imported when first used: `import tvsnap` itself costs next to nothing.
_NAMES = {
    "tvsnap.aio.cache": "AsyncCache",
    "tvsnap.aio.images": "AsyncImageStore",
    "tvsnap.aio.rollout": "AsyncRollout",
    "tvsnap.aio.sandbox": "AsyncSandbox",
    "tvsnap.cache": "Cache",
    "tvsnap.client.client": "Client connect",
    "tvsnap.client.events": "Event",
    "tvsnap.client.terminals": "Terminal",
    "tvsnap.engine.keeping.policy": "Costs Policy Rebuild",
    "tvsnap.engine.supply.recipes": "ImageSource",
    "tvsnap.environments.base": "Environment",
    "tvsnap.model.fetched": "Fetched",
    "tvsnap.model.forks": "AsyncForks Forks",
    "tvsnap.environments.service": "InnerService",
    "tvsnap.environments.terminal": "TerminalEnvironment",
    "tvsnap.environments.tools": "CallContext Tool ToolFailed tool",
    "tvsnap.environments.toolset": "ToolEnvironment",
    "tvsnap.graph": "Edge Graph",
    "tvsnap.graph.reexecution": "Remade",
    "tvsnap.host.load": "Load",
    "tvsnap.host.trees": "TreeItem",
    "tvsnap.images": "BuildProgress ImageBuildError ImageNotFound ImageSpecError ImageStore",
    "tvsnap.environments.tool_schemas": "tool_schemas",
    "tvsnap.model.calls": "Part ToolCall ToolResult",
    "tvsnap.model.credit": "CallValue Credit StateValue TaskValues",
    "tvsnap.model.errors": (
        "CallCancelled CheckpointFailed DependencyFailed ForkFailed GradingFailed InfrastructureError MachineLacks "
        "NotCheckpointable NotFound NotRestorable SandboxDied SnapshotUnusable StateLost TvsnapError UsageError"
    ),
    "tvsnap.model.grades": "Grade Verifier",
    "tvsnap.model.images": "Image ImageLimits Timeouts",
    "tvsnap.model.limits": "Budget Limits",
    "tvsnap.model.network": "Network Traffic",
    "tvsnap.model.observations": (
        "Captures Command FileChange FolderEntry FolderListing Observation Outcome Process ReapReport Service "
        "SnapshotInfo TerminalBytes"
    ),
    "tvsnap.model.services": "HealthCheck ImageService Services",
    "tvsnap.model.shares": "Share",
    "tvsnap.model.stats": "Stats",
    "tvsnap.model.task": "Task TaskPhase TaskStep",
    "tvsnap.rollout": "Rollout",
    "tvsnap.sandboxes.network.settings": "NetworkSettings",
    "tvsnap.sandboxes.protocol": "Backend Sandbox",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "AsyncCache",
    "AsyncForks",
    "AsyncImageStore",
    "AsyncRollout",
    "AsyncSandbox",
    "Backend",
    "Budget",
    "BuildProgress",
    "Cache",
    "CallCancelled",
    "CallContext",
    "CallValue",
    "Captures",
    "CheckpointFailed",
    "Client",
    "Command",
    "Costs",
    "Credit",
    "DependencyFailed",
    "Edge",
    "Environment",
    "Event",
    "Fetched",
    "FileChange",
    "FolderEntry",
    "FolderListing",
    "ForkFailed",
    "Forks",
    "Grade",
    "GradingFailed",
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
    "Share",
    "SnapshotInfo",
    "SnapshotUnusable",
    "StateLost",
    "StateValue",
    "Stats",
    "Task",
    "TaskPhase",
    "TaskStep",
    "TaskValues",
    "Terminal",
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
    "Verifier",
    "connect",
    "tool",
    "tool_schemas",
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
