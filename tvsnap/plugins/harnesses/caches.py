"""Caches that the environments of one harness share: one per set of options, in an event loop or in a process.

A cache is that of a data directory of this machine, or that of a server.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import tvsnap.aio
from tvsnap.aio.cache import AsyncCache
from tvsnap.aio.threads import begin
from tvsnap.cache import Cache
from tvsnap.host.home import resolve_home
from tvsnap.model.errors import UsageError
from tvsnap.plugins.client.client import connect
from tvsnap.plugins.client.protocols import AnyAsyncCache, AnyCache

URL_VARIABLE = "TVSNAP_URL"
TOKEN_VARIABLE = "TVSNAP_TOKEN"


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """The options of a shared cache: see `Cache` for the attributes.

    Attributes:
        home: the data directory; None for the usual one, or with a server.
        backend: the name of a backend.
        policy: the name of the rule by which snapshots are taken.
        use_cache: False to execute every call.
        timeouts: whether calls that timed out while they were working answer others.
        grade_executions: executions of a call that grades before it answers others.
        url: the address of a server, in place of a data directory; see `tvsnap.connect`.
        token: the token that the server asks for; None if it asks for none.
    """

    home: Path | None = None
    backend: str = "local"
    policy: str = "default"
    use_cache: bool = True
    timeouts: Literal["private", "shared"] = "private"
    grade_executions: int = 1

    url: str | None = None
    token: str | None = field(default=None, repr=False)

    @classmethod
    def chosen(cls, home: Path | str | None, url: str | None, token: str | None, **settings: Any) -> CacheOptions:
        """Returns the options for a data directory or a server.

        Args:
            home: the data directory; None for the usual one, unless there is a server.
            url: the server's address; None for that in `TVSNAP_URL`, if `home` is None and the variable is set.
            token: the token that the server asks for; None for that in `TVSNAP_TOKEN`.
            settings: the other attributes; with a server, which decides them, they must have their defaults.

        Raises:
            UsageError: there is both a data directory and a server, or a setting that only the server can have; or the
                data directory is none.
            MachineLacks: no rights to the data directory.
        """
        if url is None and home is None:
            url = os.environ.get(URL_VARIABLE) or None
        if url is None:
            return cls(resolve_home(home), **settings)
        if home is not None:
            raise UsageError(f"home={home} and url={url}: give the data directory, or the server, not both")
        usual = {one.name: one.default for one in fields(cls)}
        for name, value in settings.items():
            if value != usual[name]:
                raise UsageError(
                    f"{name}={value!r}: with url={url} the server says it (tvsnap serve --help); leave it out"
                )
        return cls(url=url, token=token or os.environ.get(TOKEN_VARIABLE) or None)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `Cache`."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("url", "token")}

    @property
    def place(self) -> str:
        """The address of the server, or the path of the data directory."""
        return self.url or str(self.home)

    def shell(self, state: str) -> list[str]:
        """Returns the command line that opens a shell in a fork of a state; the token, which it lacks, is a variable.

        Args:
            state: the state's full hash.
        """
        where = ["--url", self.url] if self.url else ["--home", str(self.home), "--backend", self.backend]
        return [sys.executable, "-m", "tvsnap", "shell", state, *where]


_Opened = asyncio.Future[AnyAsyncCache]
_CACHES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[CacheOptions, _Opened]] = weakref.WeakKeyDictionary()
_KEEPERS: set[asyncio.Task[None]] = set()
_PROCESS_CACHES: dict[CacheOptions, AnyCache] = {}
_OPENING = threading.Lock()
_OF_PARENTS: list[dict[CacheOptions, AnyCache]] = []
_at_exit = getattr(threading, "_register_atexit", atexit.register)
"""Registers a function for the interpreter's end while threads can still be started, which closing a cache needs."""


async def shared_cache(options: CacheOptions) -> AnyAsyncCache:
    """Returns the running event loop's cache with these options; the first call opens it.

    It is closed when the loop's tasks are cancelled at its end, as `asyncio.run` does.

    Raises:
        TvsnapError: it cannot be opened; see `Cache` and `tvsnap.connect`.
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
    try:
        cache = await _open(options)
    except BaseException as error:
        del caches[options]
        if isinstance(error, Exception):
            opened.set_exception(error)
            return
        opened.cancel()
        raise
    opened.set_result(cache)
    try:
        await asyncio.get_running_loop().create_future()  # until it is cancelled
    finally:
        del caches[options]
        await cache.close()


async def _open(options: CacheOptions) -> AnyAsyncCache:
    if options.url is not None:
        return await tvsnap.aio.connect(options.url, options.token)
    threads = ThreadPoolExecutor(1, thread_name_prefix="tvsnap-open")
    try:
        return await begin(threads, lambda: AsyncCache(**options.arguments), lambda cache: cache.cache.close())
    finally:
        threads.shutdown(wait=False)


def process_cache(options: CacheOptions) -> AnyCache:
    """Returns the process's cache with these options, for a harness that has no event loop, or one for each call.

    The first call opens it. It is closed when the process ends.

    Raises:
        TvsnapError: it cannot be opened; see `Cache` and `tvsnap.connect`.
    """
    with _OPENING:
        cache = _PROCESS_CACHES.get(options)
        if cache is None:
            cache = Cache(**options.arguments) if options.url is None else connect(options.url, options.token)
            if not _PROCESS_CACHES:
                _at_exit(_close_process_caches)
            _PROCESS_CACHES[options] = cache
        return cache


def _leave_to_the_parent() -> None:
    """Has a process that was just forked off open caches of its own."""
    global _OPENING, _PROCESS_CACHES
    _OF_PARENTS.append(_PROCESS_CACHES)  # never freed: what ends with them is the parent's
    _OPENING, _PROCESS_CACHES = threading.Lock(), {}


os.register_at_fork(after_in_child=_leave_to_the_parent)


def _close_process_caches() -> None:
    with _OPENING, contextlib.ExitStack() as ends:
        for cache in _PROCESS_CACHES.values():
            ends.callback(cache.close)
        _PROCESS_CACHES.clear()
