"""Requests that arrive while others are handled, handled together in the next step (group commit)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Batches(Generic[T, R]):
    """Handles requests in batches, one after the other, by a thread: requests during one batch are the next.

    It is used on one event loop.
    """

    def __init__(self, handle: Callable[[Sequence[T]], Sequence[R | Exception]]) -> None:
        """
        Args:
            handle: handles a batch in its order; returns the result or the error of each request. If it raises, that is
                the error of each.
        """
        self._handle = handle
        self._lock = threading.Lock()
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._running = False

    async def add(self, request: T) -> R:
        """Returns the result of a request, once its batch is handled.

        Raises:
            Exception: the request's error.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        with self._lock:
            self._waiting.append((request, future))
            begins, self._running = not self._running, True
        if begins:
            loop.run_in_executor(None, self._run, loop)
        return await future

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handles batches until no request waits; the thread does this."""
        while True:
            with self._lock:
                batch, self._waiting = self._waiting, []
                self._running = bool(batch)
            if not batch:
                return
            try:
                results: Sequence[R | Exception] = self._handle([request for request, _ in batch])
            except Exception as error:
                results = [error] * len(batch)
            loop.call_soon_threadsafe(_resolve, [future for _, future in batch], results)


def _resolve(futures: Sequence[asyncio.Future[R]], results: Sequence[R | Exception]) -> None:
    for future, result in zip(futures, results, strict=True):
        if future.cancelled():  # nobody waits for it any more
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
