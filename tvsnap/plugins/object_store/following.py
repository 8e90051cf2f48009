"""Keeps a cache's tasks in an object store: each is pulled when it begins here, and pushed as it grows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from tvsnap.cache import Cache
from tvsnap.images import ImageNotFound
from tvsnap.model.errors import InfrastructureError, NotFound, TvsnapError
from tvsnap.plugins.object_store.pull import pull
from tvsnap.plugins.object_store.push import push
from tvsnap.plugins.object_store.store import ObjectStore

_LOG = logging.getLogger("tvsnap.registry")
PUSH_EVERY_S = 60.0
"""Seconds after which what is new of a task is pushed."""
PULL_EVERY_S = 60.0
"""Seconds after which it is looked again for what others have pushed of a task, if a rollout of it begins."""
FOR_CALLS_S = 5.0
"""Seconds for which the first rollout of a task waits at most for the task's calls."""
FOR_IMAGE_S = 600.0
"""The same, if there is no such image here, so that the rollout could not begin."""
CLOSING_S = 30.0
"""Seconds that `close` takes at most to push what is new."""


_NOTHING_TO_WAIT_FOR = threading.Event()
_NOTHING_TO_WAIT_FOR.set()


@dataclass(slots=True)
class _Task:
    """The facts about a task.

    Attributes:
        looked: when it was last looked for in the store, by time.monotonic().
        called: is set once its image and calls are here, or were not to be had.
        pushed: its newest call when it was last pushed.
    """

    looked: float
    called: threading.Event = field(default_factory=threading.Event)
    pushed: int = 0


class StoredTasks:
    """The tasks of a cache that are kept in an object store. Thread-safe.

    Rollouts wait for little of it: the first one of a task for its calls, for some seconds at most. If the store
    cannot be reached, that is logged, and rollouts go on without it.
    """

    def __init__(self, cache: Cache, url: str, *, every: float = PUSH_EVERY_S) -> None:
        """
        Args:
            cache: the cache, which is closed after this.
            url: the store's address; see `ObjectStore`.
            every: seconds after which what is new of a task is pushed.

        Raises:
            UsageError: the address is none, or a package is missing.
        """
        self._cache, self._every = cache, every
        self._url = ObjectStore(url, writes=True).url  # so that what is wrong with it is said at once
        self._lock = threading.Lock()
        self._tasks: dict[str, _Task] = {}
        self._ending = threading.Event()
        self._breaking_off = threading.Event()
        self._pulls = ThreadPoolExecutor(2, thread_name_prefix="tvsnap-pull")
        self._pusher = threading.Thread(target=self._push_as_they_grow, name="tvsnap-push", daemon=True)
        self._pusher.start()

    def begins(self, task: str) -> threading.Event:
        """Takes note that a rollout of a task is about to begin; see `patience`.

        Args:
            task: the task; of rollouts without one, nothing is kept.

        Returns:
            What is set once the task's image and calls are here, as far as others have pushed them.
        """
        if not task or self._ending.is_set():
            return _NOTHING_TO_WAIT_FOR
        now = time.monotonic()
        with self._lock:
            record = self._tasks.get(task)
            looks = record is None or now - record.looked > PULL_EVERY_S
            if record is None:
                record = self._tasks[task] = _Task(now)
            if looks:
                record.looked = now
                self._pulls.submit(self._pull, task, record)
        return record.called

    def patience(self, image: str) -> float:
        """Returns for how many seconds a rollout should wait for that: long if its image is yet to come.

        Args:
            image: the image's name or digest.
        """
        try:
            self._cache.images.get(image)
        except ImageNotFound:
            return FOR_IMAGE_S
        except TvsnapError:
            pass
        return FOR_CALLS_S

    def close(self) -> None:
        """Pushes what is new, as far as that takes some seconds; safe to repeat.

        When it returns, nothing uses the cache any more: what takes longer is broken off before the next image or
        snapshot.
        """
        self._ending.set()
        self._pusher.join(CLOSING_S)
        if self._pusher.is_alive():
            _LOG.warning("not all that is new could be pushed to %s in time (tvsnap push TASK URL)", self._url)
        self._breaking_off.set()
        self._pulls.shutdown(cancel_futures=True)
        self._pusher.join()

    def _pull(self, task: str, record: _Task) -> None:
        """Brings a task's image and calls, and then its snapshots."""
        cache = self._cache

        def some(snapshots: bool) -> object:
            store = ObjectStore(self._url)
            return pull(
                store,
                cache.graph,
                cache.images,
                cache.backend,
                task=task,
                snapshots=snapshots,
                progress=self._go_on,
            )

        try:
            there = self._try("taken from", task, partial(some, snapshots=False))
        finally:
            record.called.set()
        if there:
            self._try("taken from", task, partial(some, snapshots=True))

    def _push_as_they_grow(self) -> None:
        while not self._ending.wait(self._every):
            self._push_all()
        self._push_all()

    def _push_all(self) -> None:
        with self._lock:
            tasks = dict(self._tasks)
        for task, record in tasks.items():
            if self._breaking_off.is_set():
                return
            newest = self._newest(task)
            if newest > record.pushed and self._try("pushed to", task, partial(self._push, task)):
                record.pushed = newest

    def _push(self, task: str) -> None:
        cache = self._cache
        store = ObjectStore(self._url, writes=True)
        push(store, cache.home, cache.graph, cache.images, cache.backend, task=task, progress=self._go_on)

    def _go_on(self, _what: str, _done: int, _all: int) -> None:
        """Is called in the course of a transfer; raises `InfrastructureError` once it is to be broken off."""
        if self._breaking_off.is_set():
            raise InfrastructureError("the cache is about to be closed")

    def _newest(self, task: str) -> int:
        try:
            return self._cache.graph.newest_call(task)
        except TvsnapError:
            return 0

    def _try(self, action: str, task: str, work: Callable[[], object]) -> bool:
        """Does something with the store; returns whether it could be done."""
        try:
            work()
        except NotFound:
            return False  # nobody has pushed anything of it
        except TvsnapError as error:
            if not self._breaking_off.is_set():
                _LOG.warning("task %r could not be %s the store at %s: %s", task, action, self._url, error)
            return False
        return True
