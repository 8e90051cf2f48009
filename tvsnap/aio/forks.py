"""The awaitable twin of `Forks`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tvsnap.aio.sandbox import AsyncSandbox
from tvsnap.aio.threads import in_thread
from tvsnap.engine.supply.forks import Forks


class AsyncForks:
    """Sandboxes that stood in one state when they were made; see `Forks`. `AsyncCache.fork` makes it.

    It is an asynchronous context manager that closes them.
    """

    def __init__(self, forks: Forks, threads: ThreadPoolExecutor) -> None:
        self._forks = forks
        self._threads = threads
        self._sandboxes = [AsyncSandbox(sandbox, threads) for sandbox in forks]

    def __getitem__(self, index: int) -> AsyncSandbox:
        return self._sandboxes[index]

    def __iter__(self) -> Iterator[AsyncSandbox]:
        return iter(self._sandboxes)

    def __len__(self) -> int:
        return len(self._sandboxes)

    async def close(self) -> None:
        """Ends all of them. It may be called more than once."""
        await in_thread(self._threads, self._forks.close)

    async def __aenter__(self) -> AsyncForks:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
