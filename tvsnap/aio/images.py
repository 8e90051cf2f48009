"""The awaitable twin of `ImageStore`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tvsnap.aio.threads import Twin, awaited
from tvsnap.images import ImageStore


class AsyncImageStore(Twin[ImageStore]):
    """An `ImageStore` whose methods are awaited; each is done by a thread.

    Attributes:
        store: the store underneath.
    """

    def __init__(self, store: ImageStore, threads: ThreadPoolExecutor) -> None:
        """
        Args:
            store: the store.
            threads: the threads that execute its methods.
        """
        self.store = store
        self._threads = threads

    @property
    def _original(self) -> ImageStore:
        return self.store

    get = awaited(ImageStore.get)
    """`ImageStore.get`, to be awaited."""
    list = awaited(ImageStore.list)
    """`ImageStore.list`, to be awaited."""
    remove = awaited(ImageStore.remove)
    """`ImageStore.remove`, to be awaited."""
    build = awaited(ImageStore.build)
    """`ImageStore.build`, to be awaited."""
