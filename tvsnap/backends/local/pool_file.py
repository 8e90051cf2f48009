"""A btrfs in a sparse file, for data directories on other file systems.

It is mounted detached: it shows in no mount table and is gone with the last process that uses it. It is never larger
than what the disk below it has room for, less a reserve: then a full pool is one more "No space left on device", where
a disk that is full below a file system would be failing writes, and a pool that the kernel makes read-only.
Only its owner may read the file: it holds the memory of processes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tvsnap.backends.local import btrfs, syscalls
from tvsnap.backends.room import Room
from tvsnap.errors import InfrastructureError, MachineLacks
from tvsnap.home import keep_private, make_private

_LOOP_SET_FD, _LOOP_CLR_FD, _LOOP_SET_STATUS64, _LOOP_GET_STATUS64 = 0x4C00, 0x4C01, 0x4C04, 0x4C05
_LOOP_CTL_GET_FREE, _LOOP_SET_DIRECT_IO = 0x4C82, 0x4C08
_LOOP_AUTOCLEAR = 4
_POOL_BYTES = 256 << 30
_LEAST_BYTES = 256 << 20
"""The smallest size that btrfs can be given."""
_GRAIN = 1 << 20
# Trees get a region for every eight of files: else full files would leave them none, and nothing could be deleted.
_OPTIONS = {"metadata_ratio": "8"}
_WORTH_IT = 64
"""A change of size by less than this part of it is let be."""
_FIT_EVERY, _CLEAN_EVERY = 5.0, 0.5
"""Seconds."""


class PoolFile:
    """The file of one data directory, mounted."""

    def __init__(self, image: Path) -> None:
        """Mounts it, making it if there is none.

        Raises:
            MachineLacks: no btrfs, no loop devices, no rights.
            InfrastructureError: no room for one.
        """
        if not os.access("/dev/loop-control", os.W_OK):
            raise MachineLacks("no loop device for the pool: /dev/loop-control cannot be opened (tvsnap doctor)")
        self._image = image
        self._fitted = self._cleaned = 0.0
        with _locked(image.with_suffix(".lock")):
            if not image.exists():
                below = Room.on(image.parent, image.parent)
                below.require(_LEAST_BYTES + below.reserve, "a pool")
                _make_filesystem(image)
            keep_private(image)
            loop, self.device = _attach(image)
            try:
                self._mount: int | None = syscalls.mount_detached(self.device, "btrfs", _OPTIONS)
            except OSError as error:
                raise MachineLacks(
                    f"the pool {image}, which holds the snapshots, cannot be mounted: {error.strerror}; move it away "
                    f"to start a new one, which loses the states that only a snapshot keeps"
                ) from None
            finally:
                os.close(loop)
            self.path = Path(f"/proc/self/fd/{self._mount}")
            self._fit()

    def room(self) -> Room:
        """Returns what is left in it, as far as the disk below it has room for that."""
        now = time.monotonic()
        if now - self._fitted > _FIT_EVERY:
            self._fit()
        room = self._room()
        if room.short and now - self._cleaned > _CLEAN_EVERY:
            self._cleaned = now
            with contextlib.suppress(OSError):
                os.utime(self.path)  # there is something to commit, and after that, what was deleted is cleared away
                btrfs.commit(self.path)
            room = self._room()
        return room

    def _room(self) -> Room:
        inside = Room.on(self.path, self._image.parent)
        missing = max(btrfs.size(self.path) - self._most(), 0)
        return Room(inside.where, inside.free - missing, inside.reserve)

    def close(self) -> None:
        """Gives it up; what still uses it keeps it mounted."""
        if self._mount is not None:
            os.close(self._mount)
            self._mount = None

    def _fit(self) -> None:
        """Sizes the file system so that the disk below it cannot run full through it."""
        self._fitted = time.monotonic()
        size = btrfs.size(self.path)
        wanted = min(self._image.stat().st_size, max(self._most(), _LEAST_BYTES)) // _GRAIN * _GRAIN
        if wanted < size:
            wanted = max(wanted, btrfs.allocated_end(self.path))  # what lies beyond would have to be moved
        if abs(wanted - size) > size // _WORTH_IT:
            with contextlib.suppress(OSError):  # another process does so at this moment, or there is no room to do it
                btrfs.resize(self.path, wanted)

    def _most(self) -> int:
        """Returns how many bytes the file can come to take, what it takes now included."""
        below = Room.on(self._image.parent, self._image.parent)
        return self._image.stat().st_blocks * 512 + below.free - below.reserve


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make_filesystem(image: Path) -> None:
    maker = shutil.which("mkfs.btrfs", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    if maker is None:
        raise MachineLacks("mkfs.btrfs is missing; apt-get install btrfs-progs (tvsnap doctor)")
    unfinished = image.with_suffix(".new")
    unfinished.unlink(missing_ok=True)  # a killed process may have left a mkfs at work on the old one
    with open(make_private(unfinished), "wb") as file:
        file.truncate(_POOL_BYTES)
    run = subprocess.run([maker, "-q", "-m", "single", str(unfinished)], capture_output=True, text=True)
    if run.returncode:
        unfinished.unlink()
        raise InfrastructureError(f"mkfs.btrfs {image} failed: {run.stderr.strip()}")
    unfinished.rename(image)


def _attach(image: Path) -> tuple[int, str]:
    """Returns an open loop device that shows `image`, and its path: one in use by others where there is one.

    The device clears itself when its last user is gone.
    """
    wanted = image.stat()
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        device = f"/dev/{backing.parts[3]}"
        with contextlib.suppress(OSError):
            if backing.read_text().strip() != str(image.resolve()):
                continue
            descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            status = bytearray(232)
            with contextlib.suppress(OSError):
                fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, status)
                # struct loop_info64 begins with the device and the inode of the file behind it.
                if struct.unpack_from("QQ", status)[1] == wanted.st_ino:
                    return descriptor, device
            os.close(descriptor)
    backing_file = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(50):
            device = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
            descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, _LOOP_SET_FD, backing_file)
            except OSError as error:
                os.close(descriptor)
                if error.errno == errno.EBUSY:
                    continue
                raise
            status = bytearray(232)
            struct.pack_into("I", status, 52, _LOOP_AUTOCLEAR)
            fcntl.ioctl(descriptor, _LOOP_SET_STATUS64, status)
            # Spares caching everything twice. And where there is too little room for a cached write, the kernel drops
            # the rest of it in silence. Not every file system can.
            with contextlib.suppress(OSError):
                fcntl.ioctl(descriptor, _LOOP_SET_DIRECT_IO, 1)
            return descriptor, device
    finally:
        os.close(control)
        os.close(backing_file)
    raise MachineLacks(f"no free loop device for {image} (tvsnap doctor)")
