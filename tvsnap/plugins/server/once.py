"""Requests that are done once, however often they are sent: by the key that the client chose."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from tvsnap.model.errors import CallCancelled
from tvsnap.plugins.client.wire.errors import KeyReused

T = TypeVar("T")
LONGEST_KEY = 200
MOST_AWAITED = 1000
"""Answers that are kept at most for a client that says which ones have come."""
MOST_REFUSED = 1000
"""Keys that are remembered for requests that have not come: a client may name any number of them."""


class Once(Generic[T]):
    """The requests of one kind that have come, with their answers. It is used on one event loop."""

    def __init__(self, answers: int, keys: int | None = None) -> None:
        """
        Args:
            answers: of how many requests, the latest ones, the answers are kept, until it is said which ones have come.
            keys: how many keys are known; None for all. A key that is known is never done again.
        """
        self._answers = answers
        self._most_keys = keys
        self._requests: dict[str, int] = {}
        self._kept: OrderedDict[str, asyncio.Future[T]] = OrderedDict()
        self._refused: OrderedDict[str, None] = OrderedDict()

    def acknowledge(self, keys: Iterable[str]) -> None:
        """Forgets answers that have come. From then on, all others are kept: a client may still ask for them.

        Args:
            keys: the keys of the requests.
        """
        self._answers = MOST_AWAITED
        for key in keys:
            self._kept.pop(key, None)

    def is_under_way(self, key: str) -> bool:
        """Returns whether the request of a key has been begun and is not done."""
        answer = self._kept.get(key)
        return answer is not None and not answer.done()

    def seen(self, key: str, request: int) -> asyncio.Future[T] | None:
        """Returns the answer to a request that has come before, which may be under way; None if it has not.

        Args:
            key: the key that the client chose.
            request: a hash of the request.

        Raises:
            KeyReused: it came with another request, or so long ago that its answer is not kept.
            CallCancelled: it was refused.
        """
        if len(key) > LONGEST_KEY:
            raise KeyReused(f"an idempotency key may have {LONGEST_KEY} characters, not {len(key)}")
        if key in self._refused:
            raise CallCancelled("the call was cancelled before it was executed")
        before = self._requests.get(key)
        if before is None:
            return None
        if before != request:
            raise KeyReused(f'the idempotency key "{key}" was sent before, with another request')
        if key not in self._kept:
            raise KeyReused(
                f'the request with the idempotency key "{key}" was done, and its answer is not kept any more'
            )
        return self._kept[key]

    def note(self, key: str, request: int, answer: asyncio.Future[T]) -> None:
        """Remembers a request and its answer, or that it is under way."""
        self._requests[key] = request
        self._kept[key] = answer
        while len(self._kept) > self._answers:
            oldest = next(iter(self._kept))
            if not self._kept[oldest].done():
                break
            del self._kept[oldest]
        if self._most_keys is not None and len(self._requests) > self._most_keys:
            del self._requests[next(iter(self._requests))]

    def forget(self, key: str) -> None:
        """Forgets a request that was not begun."""
        self._requests.pop(key, None)
        self._kept.pop(key, None)

    def refuse(self, key: str) -> bool:
        """Has a request that has not come yet, or was not begun, refused when it comes.

        Args:
            key: the key that the client chose, or will choose.

        Returns:
            Whether it is refused; False if it has been begun.
        """
        if key not in self._requests:
            self._refused[key[: LONGEST_KEY + 1]] = None  # a longer one is refused anyway
            while len(self._refused) > MOST_REFUSED:
                self._refused.popitem(last=False)
        return key not in self._requests

    async def do(self, key: str | None, request: int, work: Callable[[], Awaitable[T]]) -> T:
        """Does what a request asks for, or waits for what the same request came to before.

        Once begun, it is done to its end, also if nobody waits for it any more.

        Args:
            key: the key that the client chose; None if it chose none.
            request: a hash of the request.
            work: does it.

        Raises:
            KeyReused: see `seen`.
            Exception: what the work raises, each time.
        """
        future = None if key is None else self.seen(key, request)
        if future is None:
            future = asyncio.ensure_future(work())
            future.add_done_callback(_look_at)
            if key is not None:
                self.note(key, request, future)
        return await asyncio.shield(future)


def _look_at(answer: asyncio.Future[T]) -> None:
    """Has asyncio not complain of an error that nobody asked for any more."""
    if not answer.cancelled():
        answer.exception()
