"""What is awaited, used as if it blocked, so that one suite holds for both."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

from tvsnap.model.forks import Several
from tvsnap.protocols import AnyAsyncCache, AnyCache

BEGUN_AT_ONCE = ("rollout", "resume", "group")
"""Methods of a cache whose rollouts begin with their first use where they are awaited."""


@contextlib.contextmanager
def blocking(opened: Callable[[], AbstractAsyncContextManager[AnyAsyncCache]]) -> Iterator[AnyCache]:
    """A block with a cache whose methods block, although those of the one underneath are awaited, by a thread's loop.

    Args:
        opened: opens the one underneath.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        with _Blocking(opened(), loop) as cache:
            yield cast("AnyCache", cache)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


class _Blocking:
    """An object whose methods are awaited by a loop."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        inner = self._inner if hasattr(type(self._inner), name) or name == "sandbox" else self._inner.cache
        found = getattr(inner, name)
        if not inspect.ismethod(found) or name == "tools":
            return self._awaited(found() if name == "tools" else found)

        def call(*args: Any, **kwargs: Any) -> Any:
            made = self._awaited(found(*args, **kwargs))
            if name in BEGUN_AT_ONCE:
                for rollout in made if isinstance(made, list) else [made]:
                    _ = rollout.tools
            return made

        return call

    def __enter__(self) -> Any:
        return self._awaited(self._inner.__aenter__())

    def __exit__(self, *error: Any) -> Any:
        return self._awaited(self._inner.__aexit__(*error))

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, number: int) -> Any:
        return self._awaited(self._inner[number])

    def _awaited(self, value: Any) -> Any:
        """Returns a value, once it is there, as one whose methods block."""
        if inspect.isawaitable(value):
            return self._awaited(self._run(value))
        if isinstance(value, list):
            return [self._awaited(one) for one in value]
        if hasattr(value, "__aenter__") or isinstance(value, Several) or type(value).__name__.startswith("Async"):
            return _Blocking(value, self._loop)
        return value

    def _run(self, work: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result()
