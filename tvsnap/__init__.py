"""tvsnap: a stateful tool-value cache for agents that act in containers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvsnap.async_cache import AsyncCache, AsyncRollout
    from tvsnap.backends.base import Limits
    from tvsnap.budgets import Budget
    from tvsnap.cache import Cache
    from tvsnap.calls import ToolCall, ToolResult
    from tvsnap.errors import (
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
    from tvsnap.pool import ParkLimits
    from tvsnap.rollout import Rollout
    from tvsnap.stats import Stats

# Imported when first used: `import tvsnap` itself costs next to nothing.
_MODULES = {
    "AsyncCache": "tvsnap.async_cache",
    "AsyncRollout": "tvsnap.async_cache",
    "Budget": "tvsnap.budgets",
    "Cache": "tvsnap.cache",
    "CheckpointFailed": "tvsnap.errors",
    "InfrastructureError": "tvsnap.errors",
    "Limits": "tvsnap.backends.base",
    "MachineLacks": "tvsnap.errors",
    "NotCheckpointable": "tvsnap.errors",
    "NotFound": "tvsnap.errors",
    "ParkLimits": "tvsnap.pool",
    "Rollout": "tvsnap.rollout",
    "SandboxDied": "tvsnap.errors",
    "SnapshotUnusable": "tvsnap.errors",
    "StateLost": "tvsnap.errors",
    "Stats": "tvsnap.stats",
    "ToolCall": "tvsnap.calls",
    "ToolResult": "tvsnap.calls",
    "TvsnapError": "tvsnap.errors",
    "UsageError": "tvsnap.errors",
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
