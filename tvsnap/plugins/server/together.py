"""What several requests ask for, done in one step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Together(Generic[T, R]):
    """Does one step after the other: what is asked for during one is done in the next. It is used on one event loop."""

    def __init__(self, step: Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]]) -> None:
        """
        Args:
            step: does what was asked for, in this order; returns what each came to, or its error. Where it raises, that
                is the error of each.
        """
        self._step = step
        self._asked: list[tuple[T, asyncio.Future[R]]] = []
        self._going: asyncio.Task[None] | None = None

    async def do(self, what: T) -> R:
        """Returns what something came to that is asked for.

        Raises:
            Exception: the error of the step.
        """
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._asked.append((what, done))
        if self._going is None:
            self._going = asyncio.ensure_future(self._go())
        return await done

    async def _go(self) -> None:
        while self._asked:
            taken, self._asked = self._asked, []
            try:
                found: Sequence[R | Exception] = await self._step([what for what, _ in taken])
            except Exception as error:
                found = [error] * len(taken)
            for (_, done), one in zip(taken, found, strict=True):
                if done.cancelled():  # nobody waits for it any more
                    continue
                if isinstance(one, Exception):
                    done.set_exception(one)
                else:
                    done.set_result(one)
        self._going = None
