"""A fresh data directory for one run of the benchmarks, on a disk, with the image to measure with."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docker.errors import DockerException
from rich.console import Console

from benchmarks.contenders import clear
from tvsnap.cache import Cache
from tvsnap.host.home import SYSTEM_HOME
from tvsnap.host.owners import Owner, is_alive
from tvsnap.images import Image, ImageStore
from tvsnap.images.descriptions.shipped import find_source
from tvsnap.model.errors import TvsnapError
from tvsnap.model.limits import Limits
from tvsnap.sandboxes.local.backend import LocalBackend
from tvsnap.sandboxes.local.sandbox import LocalSandbox

IMAGE = "terminal"
PREFIX = "tvsnap-bench-"
SETTLING = 0.03  # seconds
YOUNG = 10.0
"""Seconds in which a directory may have no owner yet."""


@dataclass(frozen=True)
class Workspace:
    """Where the benchmarks work.

    Attributes:
        home: a data directory that is gone afterwards.
        images: where the image is; not always in `home`.
        image: the image.
        backend: sandboxes in `home`.
        quick: take fewer samples, and leave out what takes long.
        console: for what is told on the way.
    """

    home: Path
    images: ImageStore
    image: Image
    backend: LocalBackend
    quick: bool
    console: Console

    @property
    def cores(self) -> int:
        """How many processors there are to use."""
        return len(os.sched_getaffinity(0))

    def samples(self, count: int) -> int:
        """Returns how many samples to take where `count` are usual."""
        return max(3, count // 4) if self.quick else count

    @staticmethod
    def settle() -> None:
        """Waits until the kernel has cleared away what was ended before, so that it does not slow what comes next."""
        time.sleep(SETTLING)

    def tell(self, text: str) -> None:
        """Says what is being measured."""
        self.console.print(f"[dim]{text} ...[/]")

    def other_image(self, name: str) -> Image:
        """Returns another image that tvsnap ships; built where there is none."""
        return _image(self.images, name, self.console)

    def start(self) -> LocalSandbox:
        """Returns a fresh sandbox."""
        return self.backend.start(self.image, Limits())

    def fork(self, snapshot: str) -> LocalSandbox:
        """Returns a fork of a snapshot."""
        return self.backend.fork(snapshot, self.image, Limits())

    def snapshot_directory(self, snapshot: str) -> Path:
        """Returns where a snapshot lies on disk."""
        return self.backend._snapshots.path / snapshot

    @property
    def pool(self) -> Path:
        """Where the backend keeps writable layers, by a path that other processes can use."""
        path = str(self.backend._storage.path)
        return Path(path.replace("/proc/self/", f"/proc/{os.getpid()}/", 1))

    def cache(self, policy: str = "default") -> Cache:
        """Opens a cache on the data directory, with sandboxes of its own."""
        return Cache(self.home, policy=policy, images=self.images)

    def scratch(self, name: str) -> Path:
        """Returns a new empty directory, gone with the workspace."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.home))


@contextlib.contextmanager
def workspace(*, quick: bool, console: Console) -> Iterator[Workspace]:
    """A block with a workspace, of which nothing is left afterwards; what a killed run left goes now.

    The image is taken from the usual data directory if it is there; else it is built.
    """
    # /tmp may be in memory, and layers are kept on disks.
    parent = Path(os.environ.get("TMPDIR", "/var/tmp"))
    _sweep(parent)
    home = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    try:
        with _opened(home) as backend:
            images = _usual_images(home)
            yield Workspace(home, images, _image(images, IMAGE, console), backend, quick, console)
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def _opened(home: Path) -> Iterator[LocalBackend]:
    owner = Owner(home)
    try:
        backend = LocalBackend(home, owner.id)
        try:
            yield backend
        finally:
            backend.close()
    finally:
        owner.close()


def _sweep(parent: Path) -> None:
    """Ends and deletes what runs that were killed left behind."""
    for home in parent.glob(f"{PREFIX}*"):
        owners = [lock.stem for lock in (home / "run" / "owners").glob("*.lock")]
        young = time.time() - home.stat().st_mtime < YOUNG
        if young or any(is_alive(home, owner) for owner in owners):
            continue
        with _opened(home) as backend:
            backend.reap()
        if (home / "docker").is_dir():
            with contextlib.suppress(DockerException):  # its engine has gone too
                clear(home)
        shutil.rmtree(home, ignore_errors=True)


def _usual_images(home: Path) -> ImageStore:
    """Returns the usual data directory's images if it has the one to measure with, else those of `home`."""
    with contextlib.suppress(TvsnapError):
        built = ImageStore(Path(os.environ.get("TVSNAP_HOME") or SYSTEM_HOME))
        built.get(IMAGE)
        return built
    return ImageStore(home)


def _image(images: ImageStore, name: str, console: Console) -> Image:
    with contextlib.suppress(TvsnapError):
        return images.get(name)
    console.print(f"[dim]building the image {name}; `tvsnap image build {name}` beforehand would save that ...[/]")
    return images.build(find_source(name))
