"""Tasks that are generated from seeds."""

from tvsnap.plugins.training.tasks import KINDS, TOOLS, Commands, Split, Task, tasks

__all__ = ["KINDS", "TOOLS", "Commands", "Split", "Task", "tasks"]
