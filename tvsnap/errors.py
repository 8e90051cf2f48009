"""The errors that tvsnap raises."""

from __future__ import annotations

from tvsnap.environments.tools import ToolFailed
from tvsnap.images import ImageBuildError, ImageNotFound, ImageSpecError
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

__all__ = [
    "CallCancelled",
    "CheckpointFailed",
    "DependencyFailed",
    "ForkFailed",
    "GradingFailed",
    "ImageBuildError",
    "ImageNotFound",
    "ImageSpecError",
    "InfrastructureError",
    "MachineLacks",
    "NotCheckpointable",
    "NotFound",
    "NotRestorable",
    "SandboxDied",
    "SnapshotUnusable",
    "StateLost",
    "ToolFailed",
    "TvsnapError",
    "UsageError",
]
