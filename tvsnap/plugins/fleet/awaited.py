"""`AsyncFleet`: a `Fleet` whose methods are awaited; each is done by a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from tvsnap import Sandbox
from tvsnap.aio.rollout_twin import RolloutTwin
from tvsnap.aio.sandbox import AsyncSandbox
from tvsnap.aio.threads import CallThreads, Twin, awaited, begin, forked, in_thread, in_thread_at_last
from tvsnap.graph.model import Forgotten
from tvsnap.model.forks import AsyncForks, awaited_or_entered
from tvsnap.model.network import NetworkLike
from tvsnap.model.operations.caches import AwaitedCacheMethods, OpenRollout, Resume
from tvsnap.model.operations.operation import Operation
from tvsnap.plugins.client.client import RemoteSandbox
from tvsnap.plugins.fleet.fleet import SPREAD, Fleet
from tvsnap.plugins.fleet.graph import FleetImages
from tvsnap.plugins.fleet.rollout import FleetRollout
from tvsnap.types import Stats

T = TypeVar("T")
V = TypeVar("V")
THREADS = 256
"""Calls of a fleet that may be under way at once: its threads only wait for servers."""


class AsyncFleet(AwaitedCacheMethods["AsyncFleetRollout", AsyncSandbox], Twin[Fleet]):
    """A `Fleet` for `asyncio`; an asynchronous context manager.

    Attributes:
        cache: the `Fleet`, whose methods block, for what needs little time (`cache.graph`, ...).
    """

    def __init__(
        self,
        urls: Iterable[str] | Fleet,
        *,
        token: str | None = None,
        spread: int = SPREAD,
        patience: float = 60.0,
        threads: int = THREADS,
    ) -> None:
        """
        Args:
            urls: the servers' addresses; or a fleet, such as one of Ray's nodes, which is closed with this.
            token, spread, patience: see `Fleet`; they belong to addresses.
            threads: calls under way at once, at most; further ones wait for a thread.

        Raises:
            UsageError: there are no addresses, one is none, or one is there twice.
        """
        self.cache = urls if isinstance(urls, Fleet) else Fleet(urls, token=token, spread=spread, patience=patience)
        self._threads = CallThreads(threads, thread_name_prefix="tvsnap-fleet")

    @property
    def _original(self) -> Fleet:
        return self.cache

    def begin(self, opening: OpenRollout | Resume) -> AsyncFleetRollout:
        """Returns a rollout that begins with its first use; see `BeginsRollouts.begin`."""
        return AsyncFleetRollout(lambda: self.cache.begin(opening), self._threads)

    async def perform(self, operation: Operation[T]) -> T:
        """Performs an operation by a thread; see `Performs.perform`."""
        return await in_thread(self._threads, lambda: self.cache.perform(operation))

    async def _forked(self, opening: Resume, n: int) -> AsyncForks[AsyncFleetRollout]:
        threads = self._threads
        return await forked(
            threads, lambda: self.cache._forked(opening, n), lambda one: AsyncFleetRollout.of(one, threads)
        )

    async def _made(self, state: str, n: int) -> AsyncForks[AsyncSandbox]:
        return await forked(self._threads, lambda: self.cache._made(state, n), self._sandbox)

    def _sandbox(self, sandbox: RemoteSandbox) -> AsyncSandbox:
        return AsyncFleetSandbox(cast("Sandbox", sandbox), self._threads)

    @contextlib.asynccontextmanager
    async def _materialised(self, state: str, after: float, network: NetworkLike) -> AsyncIterator[AsyncSandbox]:
        block = self.cache.materialise(state, after=after, network=network)

        def leave(_: object) -> None:
            block.__exit__(None, None, None)

        sandbox = await begin(self._threads, block.__enter__, leave)
        try:
            yield self._sandbox(sandbox)
        finally:
            await asyncio.shield(in_thread_at_last(self._threads, lambda: leave(sandbox)))

    @property
    def images(self) -> AsyncFleetImages:
        """The images of all servers; see `Fleet.images`."""
        return AsyncFleetImages(self.cache.images, self._threads)

    def stats(self) -> Stats:
        """Returns what the servers have done together; see `Fleet.stats`. It blocks for as long as requests do."""
        return self.cache.stats()

    async def forget(self, **which: Any) -> tuple[Forgotten, int]:
        """Deletes what belongs to a state, a task or an image at all servers; see `Fleet.forget`."""
        return await in_thread(self._threads, lambda: self.cache.forget(**which))

    reexecute = awaited(Fleet.reexecute)
    """`Fleet.reexecute`, to be awaited."""

    async def close(self) -> None:
        """Ends its rollouts at all servers, and closes the connections; safe to repeat."""
        await in_thread(None, self.cache.close)
        await in_thread(None, self._threads.shutdown)

    async def __aenter__(self) -> AsyncFleet:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncFleetSandbox(AsyncSandbox):
    """A sandbox of a fleet's server whose methods are awaited.

    The server makes methods take turns. What a cancelled task awaited is done to its end there, as with `AsyncClient`.
    """

    async def _execute(self, work: Callable[[], V]) -> V:
        return await in_thread(self._threads, work)


class AsyncFleetImages(Twin[FleetImages]):
    """The images of a fleet's servers, to be awaited."""

    def __init__(self, images: FleetImages, threads: ThreadPoolExecutor) -> None:
        self._images = images
        self._threads = threads

    @property
    def _original(self) -> FleetImages:
        return self._images

    get = awaited(FleetImages.get)
    """`FleetImages.get`, to be awaited."""
    list = awaited(FleetImages.list)
    """`FleetImages.list`, to be awaited."""


class AsyncFleetRollout(RolloutTwin[FleetRollout]):
    """A `FleetRollout` whose methods are awaited. What is asked of it is done in the order in which it was asked for.

    It begins with its first call, or when it is entered as an asynchronous context manager, which closes it.
    """

    @property
    def url(self) -> str:
        """The address of the server where it is."""
        return self.rollout.url

    @property
    def moves(self) -> int:
        """The number of times that it has gone on at another server."""
        return self.rollout.moves

    async def tools(self) -> Mapping[str, Any]:
        """Returns the tools that may be called, by name; see `Rollout.tools`."""
        return await self._made(lambda rollout: rollout.tools)

    async def perform(self, operation: Operation[T]) -> T:
        """Performs an operation by a thread; if the awaiting task is cancelled, so is the call."""
        return await self._made(lambda rollout: rollout.perform(operation))

    async def sandbox(self) -> AsyncSandbox:
        """Returns its own sandbox; see `FleetRollout.sandbox`."""
        return AsyncFleetSandbox(cast("Sandbox", await self._made(lambda rollout: rollout.sandbox())), self._threads)

    @awaited_or_entered
    async def fork(self, n: int = 1, *, reseed: bool = False) -> AsyncForks[AsyncFleetRollout]:
        """Begins rollouts where it stands, at the same server; see `FleetRollout.fork`.

        Args:
            n: the number of rollouts.
            reseed: give each random numbers of its own.
        """
        async with self.in_order() as rollout:
            return await forked(
                self._threads,
                lambda: rollout.fork(n, reseed=reseed),
                lambda one: AsyncFleetRollout.of(one, self._threads),
            )

    async def settled(self) -> None:
        """Returns at once: a server has settled a call when it answers it."""

    async def _made(self, work: Callable[[FleetRollout], V]) -> V:
        """Returns what a thread gets from the rollout; if the awaiting task is cancelled, so is the call."""
        async with self.in_order() as rollout:
            under_way = self._threads.submit(work, rollout)
            try:
                return await asyncio.wrap_future(under_way)
            except asyncio.CancelledError:
                if not under_way.cancelled():
                    self._ending = under_way
                    asyncio.get_running_loop().run_in_executor(None, rollout.cancel)
                raise
