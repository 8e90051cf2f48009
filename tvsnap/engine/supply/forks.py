"""Several sandboxes or rollouts in one state, for exploration from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tvsnap.model.several import Several

T = TypeVar("T")


class Forks(Several[T]):
    """Sandboxes or rollouts that stood in one state when they were made; each goes on independently from there.

    It is a sequence of them. They live until `close`, until the end of a `with` block, or until the cache is closed; a
    rollout may also be closed by itself. What is done in sandboxes is not recorded; what rollouts do is.
    """

    def __init__(self, items: Sequence[T], end: Callable[[], None]) -> None:
        """
        Args:
            items: the sandboxes or rollouts.
            end: ends all of them.
        """
        super().__init__(items)
        self._end = end

    def close(self) -> None:
        """Ends all of them. It may be called more than once."""
        self._end()

    def __enter__(self) -> Forks[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
