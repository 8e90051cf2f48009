"""Several sandboxes in one state, for exploration from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvsnap.model.several import Several
from tvsnap.sandboxes.protocol import Sandbox


class Forks(Several[Sandbox]):
    """Sandboxes that stood in one state when they were made; each goes on independently from there.

    They live until `close`, until the end of a `with` block, or until the cache is closed. Nothing that is done in them
    is recorded.
    """

    def __init__(self, sandboxes: Sequence[Sandbox], end: Callable[[], None]) -> None:
        """
        Args:
            sandboxes: the sandboxes.
            end: ends all of them.
        """
        super().__init__(sandboxes)
        self._end = end

    def close(self) -> None:
        """Ends all of them. It may be called more than once."""
        self._end()

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
