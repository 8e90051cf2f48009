"""Where the writable layers of sandboxes and snapshots live, and how one is copied to the next.

`BtrfsStorage` is the usual one: a copy is a subvolume snapshot, 1.5 to 3 ms whatever its size. Where the data
directory lies on another file system, btrfs is kept in a sparse file, mounted detached: it shows in no mount table
and is gone with the last process that uses it. `CopyStorage` serves where there is no btrfs.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tvsnap.backends.local import syscalls
from tvsnap.errors import InfrastructureError, MachineLacks

_BTRFS_MAGIC = 0x9123683E
_LOOP_SET_FD, _LOOP_CLR_FD, _LOOP_SET_STATUS64, _LOOP_GET_STATUS64 = 0x4C00, 0x4C01, 0x4C04, 0x4C05
_LOOP_CTL_GET_FREE, _LOOP_SET_DIRECT_IO = 0x4C82, 0x4C08
_LOOP_AUTOCLEAR = 4
_POOL_BYTES = 256 << 30


class Storage(Protocol):
    """Directories that can be copied whole."""

    name: str
    path: Path  # where this process sees them
    device: str | None  # the block device that others must mount to see them, if there is one

    def create(self, path: Path) -> None:
        """Makes an empty directory that `copy` can copy."""
        ...

    def copy(self, source: Path, target: Path) -> None:
        """Makes `target` an independent copy of `source` at this moment."""
        ...

    def delete(self, path: Path) -> None:
        """Deletes what `create` or `copy` made; nothing happens if it is gone."""
        ...

    def close(self) -> None: ...


class BtrfsStorage:
    """Subvolumes on btrfs: of the host, or in a file of the data directory."""

    name = "btrfs"

    def __init__(self, directory: Path, image: Path) -> None:
        """Opens the pool, making it if there is none.

        Args:
            directory: used as it is if it lies on btrfs.
            image: else the file that holds a btrfs.

        Raises:
            MachineLacks: no btrfs, no loop devices, no rights.
        """
        self._mount: int | None = None
        self.device: str | None = None
        if _on_btrfs(directory):
            self.path = directory
            return
        if not os.access("/dev/loop-control", os.W_OK):
            raise MachineLacks("no loop device for the pool: /dev/loop-control cannot be opened (tvsnap doctor)")
        with _locked(image.with_suffix(".lock")):
            if not image.exists():
                _make_filesystem(image)
            loop, self.device = _attach(image)
            try:
                self._mount = syscalls.mount_detached(self.device, "btrfs")
            except OSError as error:
                raise MachineLacks(
                    f"the pool {image} cannot be mounted: {error.strerror}; it holds only what can be replayed: "
                    f"move it away to start a new one (tvsnap doctor)"
                ) from None
            finally:
                os.close(loop)
        self.path = Path(f"/proc/self/fd/{self._mount}")

    def create(self, path: Path) -> None:
        syscalls.create_subvolume(path)

    def copy(self, source: Path, target: Path) -> None:
        syscalls.snapshot_subvolume(source, target)

    def delete(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            syscalls.delete_subvolume(path)

    def close(self) -> None:
        if self._mount is not None:
            os.close(self._mount)
            self._mount = None


class CopyStorage:
    """Plain directories, copied file by file: `cp --reflink=auto`."""

    name = "copy"
    device: str | None = None

    def __init__(self, directory: Path) -> None:
        self.path = directory

    def create(self, path: Path) -> None:
        path.mkdir()

    def copy(self, source: Path, target: Path) -> None:
        run = subprocess.run(
            ["cp", "-a", "--reflink=auto", "--sparse=auto", "--", str(source), str(target)],
            capture_output=True,
            text=True,
        )
        if run.returncode:
            self.delete(target)
            raise OSError(errno.EIO, run.stderr.strip() or "cp failed", str(source))

    def delete(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        pass


def open_storage(home: Path) -> Storage:
    """Opens the storage of a data directory.

    `$TVSNAP_STORAGE` is `btrfs` (the default) or `copy`; `$TVSNAP_NO_BTRFS` simulates a machine without btrfs.

    Raises:
        MachineLacks: there is no btrfs and `copy` was not asked for.
    """
    directory = home / "pool"
    directory.mkdir(exist_ok=True, mode=0o700)
    if os.environ.get("TVSNAP_STORAGE") == "copy":
        return CopyStorage(directory)
    supported = "btrfs" in Path("/proc/filesystems").read_text() or _load_btrfs()
    if os.environ.get("TVSNAP_NO_BTRFS") or not supported:
        raise MachineLacks(
            "this kernel has no btrfs, which snapshots of files need; TVSNAP_STORAGE=copy goes on with slower copies "
            "(tvsnap doctor)"
        )
    return BtrfsStorage(directory, home / "pool.btrfs")


def _load_btrfs() -> bool:
    try:
        return subprocess.run(["modprobe", "btrfs"], capture_output=True).returncode == 0
    except OSError:
        return False


def _on_btrfs(directory: Path) -> bool:
    class Statfs(ctypes.Structure):
        _fields_ = [("type", ctypes.c_long), ("rest", ctypes.c_char * 256)]

    buffer = Statfs()
    result = ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(directory), ctypes.byref(buffer))
    return bool(result == 0 and buffer.type == _BTRFS_MAGIC)


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
    with open(unfinished, "wb") as file:
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
            with contextlib.suppress(OSError):  # spares caching everything twice; not every file system can
                fcntl.ioctl(descriptor, _LOOP_SET_DIRECT_IO, 1)
            return descriptor, device
    finally:
        os.close(control)
        os.close(backing_file)
    raise MachineLacks(f"no free loop device for {image} (tvsnap doctor)")
