"""Stores the writable layers of sandboxes and snapshots, and copies them.

Usually this is `BtrfsStorage`: a copy is a subvolume snapshot, 1.5 to 3 ms regardless of its size. If the data
directory is on another file system, the btrfs is in a sparse file. `CopyStorage` is for machines without btrfs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections import deque
from pathlib import Path

from tvsnap.host.disk import DiskSpace
from tvsnap.model.errors import MachineLacks, UsageError
from tvsnap.sandboxes.local.storage import btrfs, quota
from tvsnap.sandboxes.local.storage.pool_file import PoolFile

_COUNTED = 1000
"""Snapshots of which a process remembers the size."""
_PLENTY = 0.75
"""Fraction of a limit; while more than that is left, a copy's allowance need not be counted again."""
_RECENT, _TOGETHER = 20, 16
"""Deleted subvolumes, which the kernel still cleans; and after how many more the groups of twice as many are tried."""
_TRIES = 4
_TO_START = 64 << 20
"""Bytes that may be written regardless of the limit until `keep_limit` is called, because starting and restoring do."""


class CopyStorage:
    """Directories that can be copied as a whole: plain ones, file by file (`cp --reflink=auto`).

    Attributes:
        path: the directory in which this process sees them.
        device: the block device that other processes must mount to see them; None if there is none.
        limiting: whether `copy` enforces limits.
    """

    name = "copy"
    device: str | None = None
    limiting = False

    def __init__(self, directory: Path) -> None:
        self.path = directory

    def create(self, path: Path) -> None:
        """Makes an empty directory that `copy` can copy."""
        path.mkdir()

    def copy(self, source: Path, target: Path, *, read_only: bool = False, limit: int = 0) -> None:
        """Makes `target` an independent copy of `source` as it is now.

        Args:
            source, target: paths in this storage.
            read_only: make it immutable if that costs nothing.
            limit: bytes that it may hold, including those from `source`; 0 for no limit.
        """
        run = subprocess.run(
            ["cp", "-a", "--reflink=auto", "--sparse=auto", "--", str(source), str(target)],
            capture_output=True,
            text=True,
        )
        if run.returncode:
            self.delete(target)
            raise OSError(errno.EIO, run.stderr.strip() or "cp failed", str(source))

    def keep_limit(self, path: Path, limit: int) -> None:
        """Updates a copy's allowance of bytes, given the limit passed to `copy`: once it is used, and after changes."""

    def room(self) -> DiskSpace:
        """Returns the disk space left for all of the storage."""
        return DiskSpace.on(self.path, self.path)

    def lack(self, wanted: int) -> str | None:
        """Returns why writing `wanted` bytes, or a few, may fail at present; None if it does not. Takes some µs."""
        return DiskSpace.on(self.path, self.path.parent).lack(wanted)

    def errors(self) -> int:
        """Returns how many errors of the disk are known for this storage."""
        return 0

    def compress(self, path: Path, *, wanted: bool = True) -> None:
        """Sets whether a file, or the files that will be created in a directory, are compressed on the disk.

        Writers do not wait for that, and read the data that they wrote. Data on the disk does not change.
        """

    def delete(self, path: Path) -> None:
        """Deletes a result of `create` or `copy`, which may be gone; on failure the next sweep deletes it."""
        # Directories may be nested deeper than Python can recurse.
        subprocess.run(["rm", "-rf", "--", str(path)], stderr=subprocess.DEVNULL, check=False)

    def occupied(self) -> int | None:
        """Returns the bytes of all copies together, counting shared ones once; None if that is not known."""
        return None

    def reclaim(self, timeout: float) -> int:
        """Returns freed space to the disk, and how many bytes that is; waits `timeout` seconds at most."""
        return 0

    def close(self) -> None:
        """Closes the storage."""


class BtrfsStorage(CopyStorage):
    """Subvolumes on btrfs: of the host, or in a file in the data directory."""

    name = "btrfs"

    def __init__(self, directory: Path, image: Path) -> None:
        """Opens the pool, and makes it if there is none.

        Uses `directory` if that is on btrfs, else a btrfs in the file `image`. Raises MachineLacks without btrfs, loop
        devices or privileges, and InfrastructureError without room for a pool.
        """
        self._directory = directory
        self._pool = None if quota.on_btrfs(directory) else PoolFile(image)
        self.path = self._pool.path if self._pool else directory
        self.device = self._pool.device if self._pool else None
        self._quotas = quota.Quotas(self.path)
        if self._pool and not self._quotas.enabled:
            with contextlib.suppress(OSError):  # an older kernel
                self._quotas.enable()
        self.limiting = self._quotas.enabled
        self._counted: dict[Path, int] = {}
        self._groups: dict[Path, quota.Group] = {}
        self._generous: set[Path] = set()
        self._deleted_groups: deque[int] = deque()  # groups of deleted subvolumes
        self._deleted = 0  # subvolumes, about: threads count at once
        if self._pool and self.limiting:
            self._quotas.sweep()

    def create(self, path: Path) -> None:
        btrfs.create_subvolume(path)

    def copy(self, source: Path, target: Path, *, read_only: bool = False, limit: int = 0) -> None:
        allowed = None
        if limit and self.limiting:
            allowed = limit - self._count(source)
            if allowed < _TO_START:
                allowed = _TO_START
                self._generous.add(target)
        btrfs.snapshot_subvolume(source, target, read_only=read_only, limit=allowed)

    def keep_limit(self, path: Path, limit: int) -> None:
        if not limit or not self.limiting:
            return
        group = self._groups.get(path) or self._groups.setdefault(path, self._quotas.group(path))
        charge = group.charge()
        if path in self._generous or charge.allowed - charge.used < limit * _PLENTY:
            group.allow(sum(self._balance(path, group, limit)))
            self._generous.discard(path)

    def _balance(self, path: Path, group: quota.Group, limit: int) -> tuple[int, int]:
        """Returns the bytes that a copy's quota is charged for, and the rest of its limit, both at the same moment."""
        btrfs.commit(self.path)
        for _ in range(_TRIES):
            used = group.charge().used
            bytes_left = max(limit - quota.referenced(path), 0)
            btrfs.commit(self.path)
            if group.charge().used == used:
                break  # otherwise data was written out meanwhile, and may be in only one of the numbers
        return group.charge().used, bytes_left

    def room(self) -> DiskSpace:
        return self._pool.room() if self._pool else DiskSpace.on(self.path, self._directory)

    def lack(self, wanted: int) -> str | None:
        return DiskSpace.on(self.path, self._directory.parent).lack(wanted)

    def errors(self) -> int:
        with contextlib.suppress(OSError):  # a host file system without a first device
            return btrfs.errors(self.path)
        return 0

    def compress(self, path: Path, *, wanted: bool = True) -> None:
        with contextlib.suppress(OSError):  # it then takes more room
            btrfs.compress(path, wanted=wanted)

    def delete(self, path: Path) -> None:
        self._counted.pop(path, None)
        group = self._groups.pop(path, None)
        self._generous.discard(path)
        with contextlib.suppress(OSError):
            group = self._quotas.group(path) if group is None and self.limiting else group
            btrfs.delete_subvolume(path)
        if self._pool:
            self._pool.deleted()
            if group is not None:
                self._deleted_groups.append(group.number)
                self._deleted += 1
                if self._deleted % _TOGETHER == 0:
                    self._remove_groups()

    def _remove_groups(self) -> None:
        """Removes some of the groups of deleted subvolumes, the oldest first; those that the kernel keeps come last."""
        with contextlib.suppress(IndexError):  # another thread took the last
            for _ in range(min(2 * _TOGETHER, len(self._deleted_groups) - _RECENT)):
                number = self._deleted_groups.popleft()
                if not self._quotas.remove(number):
                    self._deleted_groups.append(number)

    def occupied(self) -> int | None:
        return self._pool.occupied() if self._pool else None

    def reclaim(self, timeout: float) -> int:
        return self._pool.reclaim(timeout) if self._pool else 0

    def close(self) -> None:
        if self._pool:
            self._pool.close()

    def _count(self, snapshot: Path) -> int:
        """Returns how many bytes a snapshot refers to; cached, because it does not change."""
        if snapshot not in self._counted:
            with contextlib.suppress(StopIteration, KeyError):
                while len(self._counted) >= _COUNTED:
                    self._counted.pop(next(iter(self._counted)))
            self._counted[snapshot] = quota.referenced(snapshot)
        return self._counted[snapshot]


POOL_FILE = "pool.btrfs"
"""The name in a data directory, if that is not on btrfs itself, of the btrfs with the files of all snapshots."""


def open_storage(home: Path) -> CopyStorage:
    """Opens the storage of a data directory.

    `$TVSNAP_STORAGE` is `btrfs` (the default) or `copy`; other values raise UsageError. Raises MachineLacks if there is
    no btrfs and `copy` was not asked for; `$TVSNAP_NO_BTRFS` simulates that.
    """
    kind = os.environ.get("TVSNAP_STORAGE") or "btrfs"
    if kind not in ("btrfs", "copy"):
        raise UsageError(f"TVSNAP_STORAGE is {kind!r}; it must be btrfs (the default) or copy")
    directory = home / "pool"
    directory.mkdir(exist_ok=True, mode=0o700)
    if kind == "copy":
        return CopyStorage(directory)
    supported = "btrfs" in Path("/proc/filesystems").read_text() or _load_btrfs()
    if os.environ.get("TVSNAP_NO_BTRFS") or not supported:
        raise MachineLacks(
            "this kernel has no btrfs, which snapshots of files need; TVSNAP_STORAGE=copy goes on with slower copies "
            "(tvsnap doctor)"
        )
    return BtrfsStorage(directory, home / POOL_FILE)


def _load_btrfs() -> bool:
    try:
        return subprocess.run(["modprobe", "btrfs"], capture_output=True).returncode == 0
    except OSError:
        return False
