"""A btrfs in a sparse file, for data directories on other file systems.

It is mounted detached: it is in no mount table, and is unmounted with the last process that uses it. Its size never
exceeds the room on the disk below it, minus a reserve: then a full pool is an ordinary "No space left on device",
whereas a full disk below a file system means failing writes, and a pool that the kernel makes read-only.
Others may fill that disk nevertheless. So the pool's tree regions are never sparse: then only the files of sandboxes
cannot be written, which is noticed (`btrfs.errors`), and the pool itself stays consistent.
Only its owner may read the file, because it holds the memory of processes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tvsnap.host.disk import DiskSpace
from tvsnap.host.home import keep_private, make_private
from tvsnap.host.libc import closing
from tvsnap.host.locks import locked
from tvsnap.model.errors import InfrastructureError, MachineLacks
from tvsnap.sandboxes.local import syscalls
from tvsnap.sandboxes.local.storage import btrfs, loop_device
from tvsnap.sandboxes.local.storage.reclaiming import Reclaimer

POOL_BYTES = 256 << 30
_LEAST_BYTES = 256 << 20
"""The smallest size that btrfs can have."""
_GRAIN = 1 << 20
# Trees get a region for every eight of files: otherwise full file regions could leave none for the trees, and nothing
# could be deleted. `Reclaimer` discards free space.
_OPTIONS = {"metadata_ratio": "8", "nodiscard": None}
_LEAST_FOR_TREES, _AT_FIRST = 16 << 20, 512 << 20
"""mkfs reserves 8 MiB, which is too little to delete files of a full pool."""
_WORTH_IT = 64
"""A change of the size by less than this fraction of it is not made."""
_FIT_EVERY, _CLEAN_EVERY = 5.0, 0.5
"""Seconds."""


class PoolFile:
    """The mounted pool file of one data directory."""

    def __init__(self, image: Path) -> None:
        """Mounts the pool, and makes it if there is none.

        Raises MachineLacks without btrfs, loop devices or privileges, and InfrastructureError without room.
        """
        if not os.access("/dev/loop-control", os.W_OK):
            raise MachineLacks("no loop device for the pool: /dev/loop-control cannot be opened (tvsnap doctor)")
        self._image = image
        self._fitted = self._cleaned = 0.0
        self._backed: set[btrfs.Region] = set()
        with _locked(image.with_suffix(".lock")):
            if not image.exists():
                require_room(image.parent)
                make_filesystem(image)
            keep_private(image)
            loop, self.device = loop_device.attach(image)
            try:
                with closing(loop):
                    self._mount: int | None = syscalls.mount_detached(self.device, "btrfs", _OPTIONS)
            except OSError as error:
                raise MachineLacks(
                    f"the pool {image}, which holds the snapshots, cannot be mounted: {error.strerror}; move it away "
                    f"to start a new one, which loses the states that only a snapshot keeps"
                ) from None
            self.path = Path(f"/proc/self/fd/{self._mount}")
            self._reclaimer = Reclaimer(self._mount, image)
            self._set_aside_for_trees()
            self._fit()

    def room(self) -> DiskSpace:
        """Returns the room in the pool, or that of the disk below if this is less."""
        now = time.monotonic()
        if now - self._fitted > _FIT_EVERY:
            self._fit()
        room = self._room()
        if room.short and now - self._cleaned > _CLEAN_EVERY:
            self._cleaned = now
            with contextlib.suppress(OSError):
                os.utime(self.path)  # makes a commit necessary, after which the kernel frees deleted files
                btrfs.commit(self.path)
            room = self._room()
        return room

    def _room(self) -> DiskSpace:
        inside = DiskSpace.on(self.path, self._image.parent)
        missing = max(btrfs.size(self.path) - self._most(), 0)
        return DiskSpace(inside.where, inside.free - missing, inside.reserve)

    def occupied(self) -> int:
        """Returns the bytes that are used in the pool."""
        return btrfs.used(self.path)

    def deleted(self) -> None:
        """Schedules returning freed space to the disk."""
        self._reclaimer.soon()

    def reclaim(self, timeout: float) -> int:
        """Returns unused space to the disk; waits `timeout` seconds at most for the kernel to free it.

        Returns:
            the bytes by which the pool's file became smaller.
        """
        returned = self._reclaimer.now(timeout)
        self._fit()
        return returned

    def close(self) -> None:
        """Releases the pool, which stays mounted while others use it."""
        if self._mount is not None:
            self._reclaimer.close()
            os.close(self._mount)
            self._mount = None

    def _fit(self) -> None:
        """Resizes the file system so that it cannot fill the disk below it, and allocates disk space for trees."""
        self._fitted = time.monotonic()
        if DiskSpace.on(self._image.parent, self._image.parent).short:
            self._reclaimer.soon(hurry=True)
        size = btrfs.size(self.path)
        wanted = min(self._image.stat().st_size, max(self._most(), _LEAST_BYTES)) // _GRAIN * _GRAIN
        regions = btrfs.regions(self.path)
        with contextlib.suppress(OSError):  # another process is resizing, or there is no room for it
            wanted = max(wanted, _end(regions))
            if abs(wanted - size) > size // _WORTH_IT:
                btrfs.resize(self.path, wanted)
        self._back({region for region in regions if not region.holds_files} - self._backed)

    def _set_aside_for_trees(self) -> None:
        """Makes larger tree regions than mkfs does; if that fails, trees get more with the first large files.

        This is done only when the pool is opened: it makes the file system small meanwhile, because a region is a tenth
        of it.
        """
        regions = btrfs.regions(self.path)
        if sum(region.length for region in regions if region.holds_trees) < _LEAST_FOR_TREES:
            with contextlib.suppress(OSError):
                btrfs.resize(self.path, max(min(btrfs.size(self.path), _AT_FIRST), _end(regions)))
                btrfs.renew_tree_regions(self.path)

    def _back(self, regions: Iterable[btrfs.Region]) -> None:
        """Allocates disk space for regions, so that later writes to them cannot fail."""
        with open(self._image, "r+b", buffering=0) as file:
            for region in regions:
                with contextlib.suppress(OSError):  # the disk is full, or its file system cannot allocate
                    syscalls.allocate(file.fileno(), region.on_device, region.length)
                    self._backed.add(region)

    def _most(self) -> int:
        """Returns how many bytes the file may grow to, including its present ones."""
        below = DiskSpace.on(self._image.parent, self._image.parent)
        return self._image.stat().st_blocks * 512 + below.free - below.reserve


def require_room(directory: Path) -> None:
    """Raises InfrastructureError if the disk of a directory is too full for a pool."""
    below = DiskSpace.on(directory, directory)
    below.require(_LEAST_BYTES + below.reserve, "a pool")


def _end(regions: Iterable[btrfs.Region]) -> int:
    """Returns the end of the last region; for a smaller file system, data would have to be moved."""
    return max(region.on_device + region.length for region in regions)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with closing(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as descriptor, locked(descriptor):
        yield


def make_filesystem(image: Path) -> None:
    """Makes the file, with an empty btrfs; from the start, only its owner can access it."""
    maker = shutil.which("mkfs.btrfs", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    if maker is None:
        raise MachineLacks("mkfs.btrfs is missing; apt-get install btrfs-progs (tvsnap doctor)")
    unfinished = image.with_suffix(".new")
    unfinished.unlink(missing_ok=True)  # the mkfs of a killed process may still be writing to the old one
    with open(make_private(unfinished), "wb") as file:
        file.truncate(POOL_BYTES)
    run = subprocess.run([maker, "-q", "-m", "single", str(unfinished)], capture_output=True, text=True)
    if run.returncode:
        unfinished.unlink()
        raise InfrastructureError(f"mkfs.btrfs {image} failed: {run.stderr.strip()}")
    unfinished.rename(image)
