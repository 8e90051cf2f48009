"""The awaitable twin of `Cache`: a hit never leaves the event loop; a miss is executed in a thread."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

from tvsnap.aio.images import AsyncImageStore
from tvsnap.aio.rollout import AsyncRollout
from tvsnap.aio.sandbox import AsyncSandbox
from tvsnap.aio.threads import CallThreads, Twin, awaited, begin, forked, in_thread
from tvsnap.cache import Cache
from tvsnap.engine.settings import CacheArguments
from tvsnap.model.arguments import check_whole
from tvsnap.model.forks import AsyncForks
from tvsnap.model.network import NetworkLike
from tvsnap.model.operations.caches import AwaitedCacheMethods, OpenRollout, Resume
from tvsnap.model.operations.operation import Operation
from tvsnap.model.stats import Stats
from tvsnap.sandboxes.protocol import Sandbox

if sys.version_info >= (3, 11):
    from typing import Unpack
else:
    from typing_extensions import Unpack

T = TypeVar("T")
THREADS = 256  # one for each call that is being executed or waited for; made when they are needed


class AsyncCache(AwaitedCacheMethods[AsyncRollout, AsyncSandbox], Twin[Cache]):
    """A `Cache` for one event loop. A hit never leaves the loop; a call that is executed runs in a thread.

    It is an asynchronous context manager that closes the cache.

    Attributes:
        cache: the `Cache` underneath, for attributes that need no waiting (`cache.graph`, `cache.pool`, ...).
    """

    def __init__(
        self,
        home: Path | str | None = None,
        *,
        threads: int = THREADS,
        **arguments: Unpack[CacheArguments],
    ) -> None:
        """Opens a data directory.

        Args:
            home: the data directory; see `Cache`.
            threads: calls that may be executed or waited for at once. Further calls wait for a thread.
            arguments: the other arguments of `Cache`.

        Raises:
            UsageError: there is no such backend or policy, or another argument makes no sense.
            MachineLacks: this machine lacks something that is needed; the message says what.
            TvsnapError: the graph cannot be opened.
        """
        check_whole(threads, "threads", 1)
        self.cache = Cache(home, **arguments)
        self._threads = CallThreads(threads, thread_name_prefix="tvsnap-call")

    def begin(self, opening: OpenRollout | Resume) -> AsyncRollout:
        """Returns a rollout that begins with its first use; see `BeginsRollouts.begin`."""
        return AsyncRollout(lambda: self.cache.begin(opening), self._threads)

    async def perform(self, operation: Operation[T]) -> T:
        """Performs an operation by a thread; see `Performs.perform`."""
        return await in_thread(self._threads, lambda: self.cache.perform(operation))

    @property
    def _original(self) -> Cache:
        return self.cache

    reexecute = awaited(Cache.reexecute)
    """`Cache.reexecute`, to be awaited."""

    @property
    def images(self) -> AsyncImageStore:
        """The images of the data directory; see `Cache.images`."""
        return AsyncImageStore(self.cache.images, self._threads)

    @property
    def trouble(self) -> str | None:
        """The reason why no snapshots are being taken at present, or None; see `Cache.trouble`."""
        return self.cache.trouble

    def refusal(self, state: str) -> str | None:
        """Returns the reason why a state could not be checkpointed, or None; see `Cache.refusal`.

        Args:
            state: the state's full hash.
        """
        return self.cache.refusal(state)

    async def _forked(self, opening: Resume, n: int) -> AsyncForks[AsyncRollout]:
        threads = self._threads
        return await forked(threads, lambda: self.cache._forked(opening, n), lambda one: AsyncRollout.of(one, threads))

    async def _made(self, state: str, n: int) -> AsyncForks[AsyncSandbox]:
        threads = self._threads
        return await forked(threads, lambda: self.cache._made(state, n), lambda one: AsyncSandbox(one, threads))

    @contextlib.asynccontextmanager
    async def _materialised(self, state: str, after: float, network: NetworkLike) -> AsyncIterator[AsyncSandbox]:
        block = self.cache.materialise(state, after=after, network=network)

        def leave(_: Sandbox) -> None:
            block.__exit__(None, None, None)

        sandbox = await begin(self._threads, block.__enter__, leave)
        try:
            yield AsyncSandbox(sandbox, self._threads)
        finally:
            leave(sandbox)  # its end is not waited for

    def stats(self) -> Stats:
        """Returns the statistics of this cache, and the counters of all processes; see `Cache.stats`."""
        return self.cache.stats()

    async def close(self) -> None:
        """Ends all rollouts and sandboxes, and waits for calls that are still being executed.

        It may be called more than once.
        """
        await in_thread(None, self.cache.close)
        await in_thread(None, self._threads.shutdown)

    async def __aenter__(self) -> AsyncCache:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
