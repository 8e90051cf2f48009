"""AppWorld's tasks."""

from tvsnap.plugins.training.appworld import IMAGE, REQUIREMENT, AppWorldTask, image_folder, task, tasks

__all__ = ["IMAGE", "REQUIREMENT", "AppWorldTask", "image_folder", "task", "tasks"]
