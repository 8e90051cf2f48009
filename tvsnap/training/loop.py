"""LOOP on PyTorch and PEFT."""

from tvsnap.plugins.training.loop import (
    VARIANTS,
    Credit,
    Learner,
    Ratio,
    Settings,
    Trajectory,
    Update,
    advantages,
    rollout_loss,
    variant,
    with_adapter,
)

__all__ = [
    "VARIANTS",
    "Credit",
    "Learner",
    "Ratio",
    "Settings",
    "Trajectory",
    "Update",
    "advantages",
    "rollout_loss",
    "variant",
    "with_adapter",
]
