"""Work that would block an event loop, done by threads."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.model.errors import UsageError
from tvsnap.model.forks import AsyncForks, Forks

S = TypeVar("S")
Original = TypeVar("Original", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class CallThreads(ThreadPoolExecutor):
    """The threads of a cache. Once they are shut down, a request for one raises the error that the cache is closed."""

    _is_shut = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Has a thread call a function. Raises UsageError if the cache is closed."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:
            if self._is_shut:
                raise UsageError("the cache is closed") from None
            raise  # for example if no thread can be started

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor.shutdown`."""
        self._is_shut = True
        super().shutdown(wait, cancel_futures=cancel_futures)


async def in_thread(threads: ThreadPoolExecutor | None, work: Callable[[], T]) -> T:
    """Returns the result of `work`, which a thread does; None for the loop's own threads."""
    return await asyncio.get_running_loop().run_in_executor(threads, work)


async def in_thread_at_last(threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    """Does the work of `in_thread`, by one of the loop's own threads if the cache is closed."""
    try:
        under_way = threads.submit(work)
    except UsageError:
        return await in_thread(None, work)
    return await asyncio.wrap_future(under_way)


async def until_done(under_way: Future[Any]) -> None:
    """Waits until the work of a thread has ended, with or without an error."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def tell(_: Future[Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(ended.set)

    under_way.add_done_callback(tell)
    await ended.wait()


async def with_its_task(under_way: Future[T], cancellation: Cancellation) -> T:
    """Returns the result of a call that a thread makes; if the awaiting task is cancelled meanwhile, so is the call."""
    try:
        return await asyncio.wrap_future(under_way)
    except asyncio.CancelledError:
        if not under_way.cancelled():  # a thread makes it; ours are all for calls
            threading.Thread(target=cancellation.cancel, name="tvsnap-cancel", daemon=True).start()
        raise


async def begin(threads: ThreadPoolExecutor, work: Callable[[], T], undo: Callable[[T], None]) -> T:
    """Returns the result of `work`, which a thread does; if the awaiting task is cancelled, `undo` gets it."""
    under_way = threads.submit(work)

    def undo_it(future: Future[T]) -> None:
        if not future.cancelled() and future.exception() is None:
            undo(future.result())

    try:
        return await asyncio.wrap_future(under_way)
    except asyncio.CancelledError:
        under_way.add_done_callback(undo_it)
        raise


async def forked(threads: ThreadPoolExecutor, make: Callable[[], Forks[S]], twin: Callable[[S], T]) -> AsyncForks[T]:
    """Returns the awaitable twins of sandboxes or rollouts that a thread makes.

    Args:
        threads: the threads that make and end them.
        make: makes them.
        twin: returns the twin of one.
    """
    forks = await begin(threads, make, Forks.close)
    return AsyncForks([twin(one) for one in forks], lambda: in_thread_at_last(threads, forks.close))


class Twin(Generic[Original]):
    """An object with awaited methods in place of those of another object."""

    _threads: ThreadPoolExecutor

    @property
    def _original(self) -> Original:
        """The other object."""
        raise NotImplementedError


def awaited(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Twin[S], P], Coroutine[Any, Any, T]]:
    """Returns a twin's method: that of the original, done by a thread, with its signature and its docstring."""

    @functools.wraps(method)
    async def call(self: Twin[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        work = getattr(self._original, method.__name__)
        return await in_thread(self._threads, lambda: work(*args, **kwargs))

    return call
