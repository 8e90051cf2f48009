"""The cache for event loops: the same, awaitable. A hit never leaves the loop; a miss is executed in a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tvsnap.cache import Cache, ImageSource
from tvsnap.model.arguments import check_whole
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import UsageError
from tvsnap.model.images import Image
from tvsnap.model.limits import Budget, Limits
from tvsnap.model.stats import Stats
from tvsnap.recording.policy import Policy
from tvsnap.rollout import DEFAULT_TIMEOUT, Rollout
from tvsnap.sandboxes.protocol import Backend, Sandbox

THREADS = 256  # one for each call that is being executed or waited for; made when they are needed

T = TypeVar("T")


class AsyncCache:
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
        policy: str | Policy = "break-even",
        limits: Limits | None = None,
        budget: Budget | None = None,
        use_cache: bool = True,
        prefork: int | None = None,
        audit: float = 0.0,
        images: ImageSource | None = None,
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
            prefork: how many sandboxes are made ahead of time; see `Cache`.
            audit: the share (0 to 1) of the answered calls that are made again and compared; see `Cache`.
            images: where images come from; see `Cache`.
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
            prefork=prefork,
            audit=audit,
            images=images,
        )
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tvsnap-call")

    def rollout(
        self, image: str | Image, task: str = "", salt: str | None = None, label: str | None = None
    ) -> AsyncRollout:
        """Returns a rollout at the root of an image. It begins with its first use; errors are raised then.

        Args:
            image: the image, or its name or digest.
            task: the task that the rollout is of; it groups rollouts for people.
            salt: a text that keeps rollouts apart: states are shared only with rollouts of the same salt.
            label: what people call this rollout.
        """
        return AsyncRollout(lambda: self.cache.rollout(image, task, salt, label), self._threads)

    @contextlib.asynccontextmanager
    async def materialise(self, state: str, *, after: float = 0.0) -> AsyncIterator[Sandbox]:
        """Returns an asynchronous context manager with a live sandbox in any state, which is ended after the block.

        Args:
            state: the state's full hash, as `AsyncRollout.state` returns it.
            after: seconds that the sandbox is to have run in the state; see `Cache.materialise`.

        Yields:
            The sandbox. Its methods block: call them in a thread (`asyncio.to_thread`) if they may take long.

        Raises:
            UsageError: `state` is not the hash of a state, or another argument makes no sense.
            NotFound: there is no such state, or its image was removed.
            StateLost: what kept the state is gone, and nothing else leads to it.
            InfrastructureError: the sandbox could not be made.
        """
        block = self.cache.materialise(state, after=after)

        def leave(_: Sandbox) -> None:
            block.__exit__(None, None, None)

        sandbox = await _begin(self._threads, block.__enter__, leave)
        try:
            yield sandbox
        finally:
            leave(sandbox)  # its end is not waited for

    def stats(self) -> Stats:
        """Returns what this cache has done so far, and the counters of all processes; see `Cache.stats`."""
        return self.cache.stats()

    async def close(self) -> None:
        """Ends all rollouts and sandboxes, and waits for calls that are still being executed.

        It may be called more than once.
        """
        await _in_thread(None, self.cache.close)
        await _in_thread(None, self._threads.shutdown)

    async def __aenter__(self) -> AsyncCache:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncRollout:
    """A `Rollout` whose calls are awaited. `AsyncCache.rollout` makes it.

    It begins with its first call, or when it is entered as an asynchronous context manager, which closes it.
    """

    def __init__(self, begin: Callable[[], Rollout], threads: ThreadPoolExecutor) -> None:
        self._begin = begin
        self._threads = threads
        self._begun: Rollout | None = None
        self._beginning = asyncio.Lock()

    @property
    def rollout(self) -> Rollout:
        """The `Rollout` underneath.

        Raises:
            UsageError: the rollout has not begun: no call was made, and no `async with` was entered.
        """
        if self._begun is None:
            raise UsageError("the rollout has not begun; use `async with`, or make a call")
        return self._begun

    @property
    def id(self) -> str | None:
        """The rollout's name in the graph; see `Rollout.id`."""
        return self.rollout.id

    @property
    def root(self) -> str:
        """The hash of the rollout's root; see `Rollout.root`."""
        return self.rollout.root

    @property
    def state(self) -> str:
        """The hash of the state at which the rollout stands; see `Rollout.state`.

        Await `settled` first, so that the loop does not wait until it is known where the last call led.
        """
        return self.rollout.state

    @property
    def depth(self) -> int:
        """The number of calls that changed the state; see `Rollout.depth`, and `state` for what may be waited for."""
        return self.rollout.depth

    @property
    def private(self) -> str | None:
        """The reason why it is in a private branch, or None; see `Rollout.private`, and `state` for waiting."""
        return self.rollout.private

    async def settled(self) -> None:
        """Waits until it is known where the last call led."""
        outcome = self.rollout.settling()
        if outcome is not None:
            await asyncio.wrap_future(outcome)

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float = DEFAULT_TIMEOUT, *, after: float = 0.0
    ) -> ToolResult:
        """Makes a tool call: answers it from the graph if that is possible, and executes it in a thread otherwise.

        If the awaiting task is cancelled, a call that is being executed goes on to its end in its thread and counts as
        made; the rollout's next call comes after it.

        Args:
            name: the tool's name.
            arguments: the tool's arguments, as plain JSON.
            timeout: seconds that the call may take where it is executed.
            after: seconds that are at least to have passed in the sandbox since the last call; see `Rollout.call`.

        Returns:
            What the tool returned, now or when the same call was made in the same state before.

        Raises:
            UsageError: there is no such tool, its arguments are wrong, or the rollout is closed.
            StateLost: what kept the rollout's state is gone, and nothing else leads to it. The rollout cannot go on.
            InfrastructureError: tvsnap, not the tool, failed. The call may be made again.
        """
        rollout = self._begun or await self._start()
        if rollout.settling() is not None:
            await self.settled()
        result = rollout.try_hit(name, arguments, timeout, after=after)
        if result is not None:
            return result
        return await _in_thread(self._threads, lambda: rollout.call(name, arguments, timeout, after=after))

    async def sandbox(self) -> Sandbox:
        """Returns the rollout's own sandbox in its present state; see `Rollout.sandbox`.

        Raises:
            StateLost: what kept the rollout's state is gone, and nothing else leads to it.
            InfrastructureError: no sandbox could be made.
        """
        rollout = self._begun or await self._start()
        return await _in_thread(self._threads, rollout.sandbox)

    async def close(self) -> None:
        """Ends the rollout, if it has begun; see `Rollout.close`. It may be called more than once."""
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
