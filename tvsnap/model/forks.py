"""Several things of one kind, such as sandboxes, that are ended together; forks that are reseeded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, overload

from tvsnap.model.calls import ToolResult, fork_seed
from tvsnap.model.errors import UsageError

T = TypeVar("T")
P = ParamSpec("P")
B = TypeVar("B", bound=AbstractAsyncContextManager[Any, Any], covariant=True)


class Several(Sequence[T]):
    """A sequence of given items."""

    def __init__(self, items: Sequence[T]) -> None:
        self._items = tuple(items)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)


class Forks(Several[T]):
    """Sandboxes or rollouts that stood in one state when they were made; each goes on independently from there.

    It is a sequence of them. They live until `close`, until the end of a `with` block, or until the cache is closed; a
    rollout may also be closed by itself. Calls of rollouts are recorded; work in sandboxes is not.
    """

    def __init__(self, items: Sequence[T], end: Callable[[], None]) -> None:
        """
        Args:
            items: the sandboxes or rollouts.
            end: ends all of them.
        """
        super().__init__(items)
        self._end = end

    def close(self) -> None:
        """Ends all of them. It may be called more than once."""
        self._end()

    def __enter__(self) -> Forks[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncForks(Several[T]):
    """Sandboxes or rollouts that stood in one state when they were made; see `Forks`. `AsyncCache.fork` makes it.

    It is an asynchronous context manager that closes them.
    """

    def __init__(self, items: Sequence[T], end: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """
        Args:
            items: the sandboxes or rollouts.
            end: ends all of them.
        """
        super().__init__(items)
        self._end = end

    async def close(self) -> None:
        """Ends all of them. It may be called more than once."""
        await self._end()

    async def __aenter__(self) -> AsyncForks[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Awaited(Generic[B]):
    """A block of `async with` that is being made: it may be awaited first, or be entered at once."""

    def __init__(self, making: Coroutine[Any, Any, B]) -> None:
        self._making = making
        self._made: B | None = None

    def __await__(self) -> Generator[Any, Any, B]:
        return self._making.__await__()

    async def __aenter__(self) -> B:
        self._made = await self._making
        await self._made.__aenter__()
        return self._made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._made is not None
        await self._made.__aexit__(kind, error, trace)


def awaited_or_entered(make: Callable[P, Coroutine[Any, Any, B]]) -> Callable[P, Awaited[B]]:
    """Returns a method that may be called as `await make()` and as `async with make()`."""

    @functools.wraps(make)
    def call(*args: P.args, **kwargs: P.kwargs) -> Awaited[B]:
        return Awaited(make(*args, **kwargs))

    return call


def reseeded(forks: Forks[T], state: str) -> Forks[T]:
    """Returns rollouts that stand at a state, each reseeded by its number; all are closed if that fails.

    Raises:
        UsageError: one cannot be reseeded, for a reason inside its sandbox.
    """
    rollouts: Sequence[Any] = forks
    try:
        for number, one in enumerate(rollouts):
            _check(one.reseed(fork_seed(state, number)))
    except BaseException:
        forks.close()
        raise
    return forks


async def reseeded_later(forks: AsyncForks[T], state: str) -> AsyncForks[T]:
    """Returns rollouts that stand at a state, each reseeded by its number; see `reseeded`."""
    rollouts: Sequence[Any] = forks
    try:
        for number, one in enumerate(rollouts):
            _check(await one.reseed(fork_seed(state, number)))
    except BaseException:
        await forks.close()
        raise
    return forks


def _check(done: ToolResult) -> None:
    if done.exit_code != 0:
        raise UsageError(
            f"the fork cannot be reseeded: {done.output.strip() or 'its command ran out of time'}; correct `reseed` in "
            "the image's description, or fork without reseed"
        )
