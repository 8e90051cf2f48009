"""Work that would block an event loop, done by threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


async def in_thread(threads: ThreadPoolExecutor | None, work: Callable[[], T]) -> T:
    """Returns what `work`, done by a thread, returns; None for the loop's own threads."""
    return await asyncio.get_running_loop().run_in_executor(threads, work)


async def begin(threads: ThreadPoolExecutor, work: Callable[[], T], undo: Callable[[T], None]) -> T:
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
