"""The types of what calls return, and of what those who write a policy, tool, environment or backend use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvsnap.aio.images import AsyncImageStore
from tvsnap.engine.keeping.policy import Costs, Rebuild
from tvsnap.engine.supply.recipes import ImageSource
from tvsnap.environments.service import InnerService
from tvsnap.environments.tools import CallContext
from tvsnap.graph import Edge, Graph
from tvsnap.graph.reexecution import Remade
from tvsnap.host.load import Load
from tvsnap.host.trees import TreeItem
from tvsnap.images import BuildProgress
from tvsnap.model.calls import Part
from tvsnap.model.credit import CallValue, Credit, StateValue, TaskValues
from tvsnap.model.fetched import Fetched
from tvsnap.model.forks import AsyncForks, Forks
from tvsnap.model.images import ImageLimits
from tvsnap.model.network import Traffic
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
    Stillness,
    TerminalBytes,
)
from tvsnap.model.services import HealthCheck, ImageService, Services
from tvsnap.model.shares import Share
from tvsnap.model.stats import Stats
from tvsnap.model.task import TaskPhase, TaskStep
from tvsnap.sandboxes.network.settings import NetworkSettings

if TYPE_CHECKING:
    from tvsnap.plugins.client.events import Event
    from tvsnap.plugins.client.terminals import Terminal

__all__ = [
    "AsyncForks",
    "AsyncImageStore",
    "BuildProgress",
    "CallContext",
    "CallValue",
    "Captures",
    "Command",
    "Costs",
    "Credit",
    "Edge",
    "Event",
    "Fetched",
    "FileChange",
    "FolderEntry",
    "FolderListing",
    "Forks",
    "Graph",
    "HealthCheck",
    "ImageLimits",
    "ImageService",
    "ImageSource",
    "InnerService",
    "Load",
    "NetworkSettings",
    "Observation",
    "Outcome",
    "Part",
    "Process",
    "ReapReport",
    "Rebuild",
    "Remade",
    "Service",
    "Services",
    "Share",
    "SnapshotInfo",
    "StateValue",
    "Stats",
    "Stillness",
    "TaskPhase",
    "TaskStep",
    "TaskValues",
    "Terminal",
    "TerminalBytes",
    "Traffic",
    "TreeItem",
]

if not TYPE_CHECKING:  # the client plugs in: it is imported when it is first used

    def __getattr__(name: str) -> Any:
        match name:
            case "Event":
                from tvsnap.plugins.client.events import Event as found
            case "Terminal":
                from tvsnap.plugins.client.terminals import Terminal as found
            case _:
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return found
