"""The awaitable twin of `Forks`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from tvsnap.aio.threads import in_thread_at_last
from tvsnap.model.several import Several

T = TypeVar("T")


class Closing(Protocol):
    """What can be closed, such as `Forks`."""

    def close(self) -> None:
        """Closes it."""


class AsyncForks(Several[T]):
    """Sandboxes or rollouts that stood in one state when they were made; see `Forks`. `AsyncCache.fork` makes it.

    It is an asynchronous context manager that closes them.
    """

    def __init__(self, forks: Closing, twins: Sequence[T], threads: ThreadPoolExecutor) -> None:
        """
        Args:
            forks: what they are the twins of.
            twins: the awaitable sandboxes or rollouts.
            threads: they end them.
        """
        super().__init__(twins)
        self._forks = forks
        self._threads = threads

    async def close(self) -> None:
        """Ends all of them. It may be called more than once."""
        await in_thread_at_last(self._threads, self._forks.close)

    async def __aenter__(self) -> AsyncForks[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
