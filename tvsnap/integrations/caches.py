"""Caches that the environments of one harness share: one for each event loop, data directory and set of options."""

from __future__ import annotations

import asyncio
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tvsnap.aio.cache import AsyncCache
from tvsnap.aio.threads import begin


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How a shared cache is opened: see `Cache` for what the attributes mean.

    Attributes:
        home: the data directory; None for the usual one.
        backend: the name of a backend.
        use_cache: False to execute every call.
        timeouts: whether calls that timed out while they were working answer others.
    """

    home: Path | None = None
    backend: str = "local"
    use_cache: bool = True
    timeouts: Literal["private", "shared"] = "private"


_Opened = asyncio.Future[AsyncCache]
_CACHES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[CacheOptions, _Opened]] = weakref.WeakKeyDictionary()
_KEEPERS: set[asyncio.Task[None]] = set()


async def shared_cache(options: CacheOptions) -> AsyncCache:
    """Returns the running event loop's cache with these options; the first who asks opens it.

    It is closed when the loop's tasks are cancelled at its end, as `asyncio.run` does.

    Args:
        options: how it is opened.

    Raises:
        TvsnapError: it cannot be opened; see `Cache`.
    """
    loop = asyncio.get_running_loop()
    caches = _CACHES.setdefault(loop, {})
    opened = caches.get(options)
    if opened is None:
        opened = caches[options] = loop.create_future()
        keeper = loop.create_task(_keep(options, opened, caches), name="tvsnap-cache")
        _KEEPERS.add(keeper)  # a loop holds its tasks weakly
        keeper.add_done_callback(_KEEPERS.discard)
    return await asyncio.shield(opened)


async def _keep(options: CacheOptions, opened: _Opened, caches: dict[CacheOptions, _Opened]) -> None:
    """Opens a cache, and closes it when this task is cancelled."""

    def make() -> AsyncCache:
        return AsyncCache(options.home, backend=options.backend, use_cache=options.use_cache, timeouts=options.timeouts)

    threads = ThreadPoolExecutor(1, thread_name_prefix="tvsnap-open")
    try:
        cache = await begin(threads, make, lambda cache: cache.cache.close())
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
