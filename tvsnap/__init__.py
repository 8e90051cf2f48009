"""tvsnap: a stateful tool-value cache for agents that act in containers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvsnap.async_cache import AsyncCache, AsyncRollout
    from tvsnap.cache import Cache
    from tvsnap.model.calls import ToolCall, ToolResult
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
    from tvsnap.model.limits import Limits
    from tvsnap.model.stats import Stats
    from tvsnap.recording.budgets import Budget
    from tvsnap.recording.live import ParkLimits
    from tvsnap.rollout import Rollout

# Imported when first used: `import tvsnap` itself costs next to nothing.
_MODULES = {
    "AsyncCache": "tvsnap.async_cache",
    "AsyncRollout": "tvsnap.async_cache",
    "Budget": "tvsnap.recording.budgets",
    "Cache": "tvsnap.cache",
    "CheckpointFailed": "tvsnap.model.errors",
    "InfrastructureError": "tvsnap.model.errors",
    "Limits": "tvsnap.model.limits",
    "MachineLacks": "tvsnap.model.errors",
    "NotCheckpointable": "tvsnap.model.errors",
    "NotFound": "tvsnap.model.errors",
    "ParkLimits": "tvsnap.recording.live",
    "Rollout": "tvsnap.rollout",
    "SandboxDied": "tvsnap.model.errors",
    "SnapshotUnusable": "tvsnap.model.errors",
    "StateLost": "tvsnap.model.errors",
    "Stats": "tvsnap.model.stats",
    "ToolCall": "tvsnap.model.calls",
    "ToolResult": "tvsnap.model.calls",
    "TvsnapError": "tvsnap.model.errors",
    "UsageError": "tvsnap.model.errors",
}

__all__ = [
    "AsyncCache",
    "AsyncRollout",
    "Budget",
    "Cache",
    "CheckpointFailed",
    "InfrastructureError",
    "Limits",
    "MachineLacks",
    "NotCheckpointable",
    "NotFound",
    "ParkLimits",
    "Rollout",
    "SandboxDied",
    "SnapshotUnusable",
    "StateLost",
    "Stats",
    "ToolCall",
    "ToolResult",
    "TvsnapError",
    "UsageError",
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
