"""Rows of a trainer's data set that say a task."""

from tvsnap.plugins.harnesses.attempts import Assignment, Attempt, Setting, as_row, as_text

__all__ = ["Assignment", "Attempt", "Setting", "as_row", "as_text"]
