"""Caches that the environments of one harness share: one per set of options, in an event loop or in a process."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tvsnap.aio.cache import AsyncCache
from tvsnap.aio.threads import begin
from tvsnap.cache import Cache


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How a shared cache is opened: see `Cache` for the attributes.

    Attributes:
        home: the data directory; None for the usual one.
        backend: the name of a backend.
        policy: the name of the rule by which snapshots are taken.
        use_cache: False to execute every call.
        timeouts: whether calls that timed out while they were working answer others.
        grade_executions: how often a call that grades is executed before it answers others.
    """

    home: Path | None = None
    backend: str = "local"
    policy: str = "break-even"
    use_cache: bool = True
    timeouts: Literal["private", "shared"] = "private"
    grade_executions: int = 1

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `Cache`."""
        return asdict(self)


_Opened = asyncio.Future[AsyncCache]
_CACHES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[CacheOptions, _Opened]] = weakref.WeakKeyDictionary()
_KEEPERS: set[asyncio.Task[None]] = set()
_PROCESS_CACHES: dict[CacheOptions, Cache] = {}
_OPENING = threading.Lock()
_at_exit = getattr(threading, "_register_atexit", atexit.register)
"""Registers a function for the interpreter's end while threads can still be started, which closing a cache needs."""


async def shared_cache(options: CacheOptions) -> AsyncCache:
    """Returns the running event loop's cache with these options; the first call opens it.

    It is closed when the loop's tasks are cancelled at its end, as `asyncio.run` does.

    Raises:
        TvsnapError: it cannot be opened; see `Cache`.
    """
    loop = asyncio.get_running_loop()
    caches = _CACHES.setdefault(loop, {})
    opened = caches.get(options)
    if opened is None:
        opened = caches[options] = loop.create_future()
        keeper = loop.create_task(_keep(options, opened, caches), name="tvsnap-cache")
        _KEEPERS.add(keeper)  # a loop has only weak references to its tasks
        keeper.add_done_callback(_KEEPERS.discard)
    return await asyncio.shield(opened)


async def _keep(options: CacheOptions, opened: _Opened, caches: dict[CacheOptions, _Opened]) -> None:
    """Opens a cache, and closes it when this task is cancelled."""
    threads = ThreadPoolExecutor(1, thread_name_prefix="tvsnap-open")
    try:
        cache = await begin(threads, lambda: AsyncCache(**options.arguments), lambda cache: cache.cache.close())
    except BaseException as error:
        del caches[options]
        if isinstance(error, Exception):
            opened.set_exception(error)
            return
        opened.cancel()
        raise
    finally:
        threads.shutdown(wait=False)
    opened.set_result(cache)
    try:
        await asyncio.get_running_loop().create_future()  # until it is cancelled
    finally:
        del caches[options]
        await cache.close()


def process_cache(options: CacheOptions) -> Cache:
    """Returns the process's cache with these options, for a harness that has no event loop, or one for each call.

    The first call opens it. It is closed when the process ends.

    Raises:
        TvsnapError: it cannot be opened; see `Cache`.
    """
    with _OPENING:
        cache = _PROCESS_CACHES.get(options)
        if cache is None:
            cache = Cache(**options.arguments)
            if not _PROCESS_CACHES:
                _at_exit(_close_process_caches)
            _PROCESS_CACHES[options] = cache
        return cache


def _close_process_caches() -> None:
    with _OPENING, contextlib.ExitStack() as ends:
        for cache in _PROCESS_CACHES.values():
            ends.callback(cache.close)
        _PROCESS_CACHES.clear()
