"""The awaitable twin of `Cache`: a hit never leaves the event loop; a miss is executed in a thread."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Literal, TypeVar

from tvsnap.aio.images import AsyncImageStore
from tvsnap.aio.rollout import AsyncRollout
from tvsnap.aio.sandbox import AsyncSandbox
from tvsnap.aio.threads import CallThreads, Twin, awaited, begin, forked, in_thread
from tvsnap.cache import Cache
from tvsnap.engine.keeping.policy import Policy
from tvsnap.engine.supply.recipes import ImageSource
from tvsnap.environments.base import Environment
from tvsnap.model.arguments import check_whole
from tvsnap.model.limits import Budget, Limits
from tvsnap.model.network import NetworkLike
from tvsnap.model.operations.caches import AwaitedCacheMethods, OpenRollout, Resume
from tvsnap.model.operations.operation import Operation
from tvsnap.model.several import AsyncForks
from tvsnap.model.shares import Share
from tvsnap.model.stats import Stats
from tvsnap.sandboxes.network.settings import NetworkSettings
from tvsnap.sandboxes.protocol import Backend, Sandbox

T = TypeVar("T")
THREADS = 256  # one for each call that is being executed or waited for; made when they are needed


class AsyncCache(AwaitedCacheMethods[AsyncRollout, AsyncSandbox], Twin[Cache]):
    """A `Cache` for one event loop. A hit never leaves the loop; a call that is executed runs in a thread.

    It is an asynchronous context manager that closes the cache.

    Attributes:
        cache: the `Cache` underneath, for what needs no waiting (`cache.graph`, `cache.pool`, ...).
    """

    def __init__(
        self,
        home: Path | str | None = None,
        *,
        backend: str | Backend = "local",
        policy: str | Policy = "default",
        limits: Limits | None = None,
        budget: Budget | None = None,
        use_cache: bool = True,
        same_ids: bool = False,
        prefork: int | None = None,
        audit: float = 0.0,
        images: ImageSource | None = None,
        environments: Iterable[Environment] = (),
        network_settings: NetworkSettings | None = None,
        network_answers: float | None = None,
        timeouts: Literal["private", "shared"] = "private",
        grade_executions: int = 1,
        shares: Iterable[Share] = (),
        graph: str | None = None,
        threads: int = THREADS,
    ) -> None:
        """Opens a data directory.

        Args:
            home: the data directory; see `Cache`.
            backend: the name of a backend, or an open backend; see `Cache`.
            policy: when to take snapshots; see `Cache`.
            limits: what one sandbox may use; see `Cache`.
            budget: what snapshots and sandboxes may use together; see `Budget`.
            use_cache: False to execute every call, in one fresh sandbox for each rollout.
            same_ids: whether processes then have the ids that they would have with the cache; see `Cache`.
            prefork: how many sandboxes are made ahead of time; see `Cache`.
            audit: the share (0 to 1) of the answered calls that are made again and compared; see `Cache`.
            images: where images come from; see `Cache`.
            environments: environments of your own; see `Cache`.
            network_settings: what the host lends to sandboxes that have a network; see `Cache`.
            network_answers: seconds for which a call that asked the network answers others; see `Cache`.
            timeouts: whether calls that timed out while they were working answer others; see `Cache`.
            grade_executions: how often a call that grades is executed before it answers others; see `Cache`.
            shares: the parts that several owners have; see `Cache`.
            graph: the database through which hosts exchange their calls; see `Cache`.
            threads: how many calls may be executed or waited for at once. Further calls wait for a thread.

        Raises:
            UsageError: there is no such backend or policy, or another argument makes no sense.
            MachineLacks: this machine lacks something that is needed; the message says what.
            TvsnapError: the graph cannot be opened.
        """
        check_whole(threads, "threads", 1)
        self.cache = Cache(
            home,
            backend=backend,
            policy=policy,
            limits=limits,
            budget=budget,
            use_cache=use_cache,
            same_ids=same_ids,
            prefork=prefork,
            audit=audit,
            images=images,
            environments=environments,
            network_settings=network_settings,
            network_answers=network_answers,
            timeouts=timeouts,
            grade_executions=grade_executions,
            shares=shares,
            graph=graph,
        )
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
        """Returns what this cache has done so far, and the counters of all processes; see `Cache.stats`."""
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
