"""The base of the awaitable twins of rollouts: their positions, and the order of their operations."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from tvsnap.aio.threads import Twin, begin, in_thread, in_thread_at_last, until_done
from tvsnap.model.arguments import outcome_of
from tvsnap.model.errors import UsageError
from tvsnap.model.same_turn import RunsSideBySide


class Begun(Protocol):
    """A rollout whose methods block."""

    @property
    def id(self) -> str | None: ...
    @property
    def root(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def depth(self) -> int: ...
    @property
    def private(self) -> str | None: ...
    @property
    def unshared(self) -> str | None: ...
    def cancel(self) -> bool: ...
    def close(self, outcome: str | None = None) -> None: ...


R = TypeVar("R", bound=Begun)
T = TypeVar("T", bound="RolloutTwin[Any]")


class RolloutTwin(Twin[R], RunsSideBySide):
    """A rollout whose methods are awaited; each is done by a thread.

    It begins with its first call, or when it is entered as an asynchronous context manager, which closes it.
    """

    def __init__(self, begin: Callable[[], R], threads: ThreadPoolExecutor) -> None:
        self._begin = begin
        self._threads = threads
        self._begun: R | None = None
        self._beginning = asyncio.Lock()
        self._order = asyncio.Lock()  # it serves those that wait in the order in which they came
        self._ending: Future[Any] | None = None  # a call that nobody waits for any more

    @classmethod
    def of(cls: type[T], rollout: R, threads: ThreadPoolExecutor) -> T:
        """Returns the twin of a rollout that has begun.

        Args:
            rollout: the rollout.
            threads: they make its calls.
        """
        twin = cls(lambda: rollout, threads)
        twin._begun = rollout
        return twin

    @property
    def rollout(self) -> R:
        """The `Rollout` underneath.

        Raises:
            UsageError: the rollout has not begun: no call was made, and no `async with` was entered.
        """
        if self._begun is None:
            raise UsageError("the rollout has not begun; use `async with`, or make a call")
        return self._begun

    @property
    def _original(self) -> R:
        return self.rollout

    def __str__(self) -> str:
        """Returns the text for `print`. Await `settled` first, so that no loop waits."""
        return repr(self) if self._begun is None else str(self._begun)

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

        Await `settled` first, so that the loop does not wait for the outcome of the last call.
        """
        return self.rollout.state

    @property
    def depth(self) -> int:
        """The number of calls that changed the state; see `Rollout.depth`, and `state` for waiting."""
        return self.rollout.depth

    @property
    def private(self) -> str | None:
        """The reason why it is in a private branch, or None; see `Rollout.private`, and `state` for waiting."""
        return self.rollout.private

    @property
    def unshared(self) -> str | None:
        """The reason why the last call's result answers no other, or None; see `Rollout.unshared`, and `state`."""
        return self.rollout.unshared

    async def cancel(self) -> bool:
        """Ends the call that is being made, and waits until it has ended; see `Rollout.cancel`.

        Returns:
            Whether a call was being made.
        """
        return await in_thread(None, self.rollout.cancel)

    async def close(self, outcome: str | None = None) -> None:
        """Ends the rollout, if it has begun; see `Rollout.close`. It may be called more than once.

        Args:
            outcome: the error that ended it, in words; None if it has come to its end.
        """
        if self._begun is not None:
            rollout = self._begun
            await asyncio.shield(in_thread_at_last(self._threads, lambda: rollout.close(outcome)))

    async def __aenter__(self: T) -> T:
        await self._start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        await self.close(outcome_of(error))

    @contextlib.asynccontextmanager
    async def in_order(self) -> AsyncIterator[R]:
        """A block that begins once all earlier operations have ended; later ones wait for its end.

        Without it, the threads of two calls would race for their turn, and an answer from the graph would come before
        a thread has begun with the call that precedes it.
        """
        async with self._order:
            yield await self._ready()

    async def _ready(self) -> R:
        """Returns the rollout, which has begun, once an abandoned call has ended."""
        rollout = self._begun or await self._start()
        ending, self._ending = self._ending, None
        if ending is not None:
            try:
                await until_done(ending)
            except asyncio.CancelledError:
                self._ending = ending
                raise
        return rollout

    async def _start(self) -> R:
        async with self._beginning:
            if self._begun is None:
                self._begun = await begin(self._threads, self._begin, lambda rollout: rollout.close())
            return self._begun
