"""LOOP on PyTorch and PEFT."""

from tvsnap.plugins.training.loop import (
    VARIANTS,
    Credit,
    Learner,
    Noise,
    Ratio,
    Settings,
    Trajectory,
    Update,
    advantages,
    rollout_loss,
    tree_advantages,
    variant,
    with_adapter,
)

__all__ = [
    "VARIANTS",
    "Credit",
    "Learner",
    "Noise",
    "Ratio",
    "Settings",
    "Trajectory",
    "Update",
    "advantages",
    "rollout_loss",
    "tree_advantages",
    "variant",
    "with_adapter",
]
