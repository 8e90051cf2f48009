"""The awaitable twin of `Forks`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tvsnap.aio.sandbox import AsyncSandbox
from tvsnap.aio.threads import in_thread
from tvsnap.engine.supply.forks import Forks
from tvsnap.model.several import Several


class AsyncForks(Several[AsyncSandbox]):
    """Sandboxes that stood in one state when they were made; see `Forks`. `AsyncCache.fork` makes it.

    It is an asynchronous context manager that closes them.
    """

    def __init__(self, forks: Forks, threads: ThreadPoolExecutor) -> None:
        super().__init__([AsyncSandbox(sandbox, threads) for sandbox in forks])
        self._forks = forks
        self._threads = threads

    async def close(self) -> None:
        """Ends all of them. It may be called more than once."""
        await in_thread(self._threads, self._forks.close)

    async def __aenter__(self) -> AsyncForks:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
