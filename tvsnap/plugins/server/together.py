"""What several requests ask for, done in one step."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Together(Generic[T, R]):
    """Does one step after the other, by a thread: what is asked for during one is done in the next.

    It is used on one event loop.
    """

    def __init__(self, step: Callable[[Sequence[T]], Sequence[R | Exception]]) -> None:
        """
        Args:
            step: does what was asked for, in this order; returns what each came to, or its error. Where it raises, that
                is the error of each.
        """
        self._step = step
        self._lock = threading.Lock()
        self._asked: list[tuple[T, asyncio.Future[R]]] = []
        self._going = False

    async def do(self, what: T) -> R:
        """Returns what something came to that is asked for.

        Raises:
            Exception: the error of the step.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[R] = loop.create_future()
        with self._lock:
            self._asked.append((what, done))
            begins, self._going = not self._going, True
        if begins:
            loop.run_in_executor(None, self._go, loop)
        return await done

    def _go(self, loop: asyncio.AbstractEventLoop) -> None:
        """Takes steps until nothing is asked for any more; the thread does this."""
        while True:
            with self._lock:
                taken, self._asked = self._asked, []
                self._going = bool(taken)
            if not taken:
                return
            try:
                found: Sequence[R | Exception] = self._step([what for what, _ in taken])
            except Exception as error:
                found = [error] * len(taken)
            loop.call_soon_threadsafe(_tell, [done for _, done in taken], found)


def _tell(several: Sequence[asyncio.Future[R]], found: Sequence[R | Exception]) -> None:
    for done, one in zip(several, found, strict=True):
        if done.cancelled():  # nobody waits for it any more
            continue
        if isinstance(one, Exception):
            done.set_exception(one)
        else:
            done.set_result(one)
