"""The cache for event loops: the same, awaitable. A hit never leaves the loop; a miss is executed in a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tvsnap.cache import MAX_SANDBOXES, Cache, ImageSource
from tvsnap.model.arguments import check_whole
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import UsageError
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.stats import Stats
from tvsnap.recording.budgets import Budget
from tvsnap.recording.live import ParkLimits
from tvsnap.recording.policy import Policy
from tvsnap.rollout import DEFAULT_TIMEOUT, Rollout
from tvsnap.sandboxes.protocol import Backend, Sandbox

THREADS = 256  # one for each call that is being executed or waited for; made when they are needed

T = TypeVar("T")


class AsyncCache:
    """A `Cache` for one event loop; an asynchronous context manager.

    Attributes:
        cache: the cache underneath, for what needs no waiting (`cache.graph`, `cache.pool`, ...).
    """

    def __init__(
        self,
        home: Path | str | None = None,
        *,
        backend: str | Backend = "local",
        policy: str | Policy = "break-even",
        limits: Limits | None = None,
        budget: Budget | None = None,
        use_cache: bool = True,
        max_sandboxes: int = MAX_SANDBOXES,
        park: ParkLimits | None = None,
        prefork: int | None = None,
        audit: float = 0.0,
        images: ImageSource | None = None,
        threads: int = THREADS,
    ) -> None:
        """Opens a data directory; arguments and errors are those of `Cache`.

        Args:
            threads: how many calls may be executed or waited for at once; others queue.
        """
        check_whole(threads, "threads", 1)
        self.cache = Cache(
            home,
            backend=backend,
            policy=policy,
            limits=limits,
            budget=budget,
            use_cache=use_cache,
            max_sandboxes=max_sandboxes,
            park=park,
            prefork=prefork,
            audit=audit,
            images=images,
        )
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tvsnap-call")

    def rollout(
        self, image: str | Image, task: str = "", salt: str | None = None, label: str | None = None
    ) -> AsyncRollout:
        """Returns a rollout, which begins with its first use; see `Cache.rollout`."""
        return AsyncRollout(lambda: self.cache.rollout(image, task, salt, label), self._threads)

    @contextlib.asynccontextmanager
    async def materialise(self, state: str, *, after: float = 0.0) -> AsyncIterator[Sandbox]:
        """A block with a live throw-away sandbox in any state of the graph; see `Cache.materialise`."""
        block = self.cache.materialise(state, after=after)

        def leave(_: Sandbox) -> None:
            block.__exit__(None, None, None)

        sandbox = await _begin(self._threads, block.__enter__, leave)
        try:
            yield sandbox
        finally:
            leave(sandbox)  # its end is not waited for

    def stats(self) -> Stats:
        """Returns what this cache has done so far; see `Cache.stats`."""
        return self.cache.stats()

    async def close(self) -> None:
        """Ends all rollouts and sandboxes; waits for calls that are still being executed. Safe to repeat."""
        await _in_thread(None, self.cache.close)
        await _in_thread(None, self._threads.shutdown)

    async def __aenter__(self) -> AsyncCache:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncRollout:
    """A `Rollout` whose calls are awaited. Made by `AsyncCache.rollout`; an asynchronous context manager."""

    def __init__(self, begin: Callable[[], Rollout], threads: ThreadPoolExecutor) -> None:
        self._begin = begin
        self._threads = threads
        self._begun: Rollout | None = None
        self._beginning = asyncio.Lock()

    @property
    def rollout(self) -> Rollout:
        """The rollout underneath.

        Raises:
            UsageError: it has not begun: nothing was called, and no `async with` entered.
        """
        if self._begun is None:
            raise UsageError("the rollout has not begun; use `async with`, or make a call")
        return self._begun

    @property
    def id(self) -> str | None:
        """See `Rollout.id`."""
        return self.rollout.id

    @property
    def root(self) -> str:
        """See `Rollout.root`."""
        return self.rollout.root

    @property
    def state(self) -> str:
        """See `Rollout.state`. Await `settled` first where the loop must not wait for the last call's outcome."""
        return self.rollout.state

    @property
    def depth(self) -> int:
        """See `Rollout.depth`, and `state` here."""
        return self.rollout.depth

    @property
    def private(self) -> str | None:
        """See `Rollout.private`, and `state` here."""
        return self.rollout.private

    async def settled(self) -> None:
        """Waits until it is known where the last call led."""
        outcome = self.rollout.settling()
        if outcome is not None:
            await asyncio.wrap_future(outcome)

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float = DEFAULT_TIMEOUT, *, after: float = 0.0
    ) -> ToolResult:
        """Makes a tool call; see `Rollout.call`.

        If the awaiting task is cancelled, a call that is being executed goes on to its end in its thread and counts as
        made; the rollout's next call comes after it.
        """
        rollout = self._begun or await self._start()
        if rollout.settling() is not None:
            await self.settled()
        result = rollout.try_hit(name, arguments, timeout, after=after)
        if result is not None:
            return result
        return await _in_thread(self._threads, lambda: rollout.call(name, arguments, timeout, after=after))

    async def sandbox(self) -> Sandbox:
        """Returns a live sandbox in the present state; see `Rollout.sandbox`."""
        rollout = self._begun or await self._start()
        return await _in_thread(self._threads, rollout.sandbox)

    async def close(self) -> None:
        """Ends the rollout; see `Rollout.close`."""
        if self._begun is not None:
            await asyncio.shield(_in_thread(self._threads, self._begun.close))

    async def __aenter__(self) -> AsyncRollout:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _start(self) -> Rollout:
        async with self._beginning:
            if self._begun is None:
                self._begun = await _begin(self._threads, self._begin, Rollout.close)
            return self._begun


async def _in_thread(threads: ThreadPoolExecutor | None, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, work)


async def _begin(threads: ThreadPoolExecutor, work: Callable[[], T], undo: Callable[[T], None]) -> T:
    """Returns what `work`, done by a thread, returns; if the awaiting task is cancelled meanwhile, that is undone."""
    under_way = threads.submit(work)

    def undo_it(done: Future[T]) -> None:
        if not done.cancelled() and done.exception() is None:
            undo(done.result())

    try:
        return await asyncio.wrap_future(under_way)
    except asyncio.CancelledError:
        under_way.add_done_callback(undo_it)
        raise
