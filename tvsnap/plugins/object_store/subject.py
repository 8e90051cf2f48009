"""The subject of a push and a pull, a task or a state, and their progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from tvsnap.model.errors import UsageError

STATE, TASK = "states", "tasks"

Progress = Callable[[str, int, int], object]
"""Takes the name of a part, and how many bytes of how many are through."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A task, or a state with the calls that lead to it and lie behind it.

    Attributes:
        task: the task; or
        state: the state's full hash.
    """

    task: str | None
    state: str | None

    def __post_init__(self) -> None:
        if (self.task is None) == (self.state is None):
            raise UsageError("name a task or a state")

    def __str__(self) -> str:
        return f'task "{self.task}"' if self.state is None else f"state {self.state[:12]}"

    @property
    def folder(self) -> str:
        """The folder of a store with the descriptions of this subject."""
        return f"{TASK}/{quoted(self.task or '')}" if self.state is None else f"{STATE}/{quoted(self.state)}"


class Meter:
    """The progress of one part."""

    def __init__(self, progress: Progress, part: str, size: int) -> None:
        """
        Args:
            progress: takes the progress.
            part: the part's name.
            size: its size in bytes.
        """
        self._progress = progress
        self._part = part
        self._size = size
        self._moved = 0

    def add(self, size: int) -> None:
        """Tells that so many further bytes are through."""
        self._moved += size
        self._progress(self._part, min(self._moved, self._size), self._size)


def image_part(name: str, digest: str) -> str:
    """Returns the name of an image as a part of a push or a pull.

    Args:
        name: the image's name; empty if it has none.
        digest: its digest.
    """
    return f"image {name or digest[:12]}"


def quoted(name: str) -> str:
    """Returns a name as a part of a path in a store: never empty, and never one that means something else."""
    return "_" + quote(name, safe="")
