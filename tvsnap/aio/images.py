"""The awaitable twin of `ImageStore`."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tvsnap.aio.threads import in_thread
from tvsnap.images import BuildProgress, ImageSpec, ImageStore
from tvsnap.model.images import Image


class AsyncImageStore:
    """An `ImageStore` whose methods are awaited; each is done by a thread.

    Attributes:
        store: the store underneath.
    """

    def __init__(self, store: ImageStore, threads: ThreadPoolExecutor) -> None:
        """
        Args:
            store: the store.
            threads: what its methods are done by.
        """
        self.store = store
        self._threads = threads

    async def get(self, name: str) -> Image:
        """Returns a built image; see `ImageStore.get`.

        Args:
            name: its name, or its digest or the beginning of that.

        Raises:
            ImageNotFound: there is none.
        """
        return await in_thread(self._threads, lambda: self.store.get(name))

    async def list(self) -> builtins.list[Image]:
        """Returns all built images; see `ImageStore.list`."""
        return await in_thread(self._threads, self.store.list)

    async def remove(self, name: str) -> Image:
        """Removes an image; see `ImageStore.remove`.

        Args:
            name: as in `get`.

        Returns:
            What was removed.

        Raises:
            ImageNotFound: there is none.
        """
        return await in_thread(self._threads, lambda: self.store.remove(name))

    async def build(
        self,
        source: Path | str | ImageSpec,
        *,
        name: str | None = None,
        progress: BuildProgress | None = None,
        force: bool = False,
        keep_layers: bool = False,
        allow: Sequence[Path] = (),
    ) -> Image:
        """Builds the image that a folder describes, unless it is there already; see `ImageStore.build`.

        Args:
            source: the name of an image that comes with tvsnap, or a folder, or a description that was read already.
            name: the image's name; by default that in its description, or the folder's.
            progress: an object that is told what happens.
            force: whether to build even if nothing changed.
            keep_layers: whether to leave the layers of a Dockerfile in the Docker Engine.
            allow: directories outside the folder that hold what the image may start from.

        Returns:
            The image.

        Raises:
            ImageSpecError: the folder's description is missing or wrong.
            ImageBuildError: a step failed; nothing of the build is left.
            MachineLacks: this machine lacks something that is needed.
        """
        return await in_thread(
            self._threads,
            lambda: self.store.build(
                source, name=name, progress=progress, force=force, keep_layers=keep_layers, allow=allow
            ),
        )
