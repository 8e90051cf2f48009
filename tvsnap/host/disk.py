"""The free space of a disk, and the part of it that is always kept free."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tvsnap.model.errors import NoRoom

_MOST_RESERVED = 1 << 30
_SHARE_RESERVED = 20
_NEARLY_FULL = 8  # if less than an eighth of the reserve is left, any write may fail


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The free space of one file system."""

    where: Path  # a directory on it, for messages
    free: int  # bytes
    reserve: int  # bytes of these that are to stay free: a twentieth of the file system, 1 GiB at most
    total: int = 0  # bytes of the file system, used or not
    read_only: bool = False  # nothing can be written, even if there is room

    @classmethod
    def on(cls, directory: Path | int, where: Path) -> DiskSpace:
        """Returns the free space of a directory's (or a descriptor's) file system, which messages call `where`."""
        status = os.statvfs(directory)
        total = status.f_blocks * status.f_frsize
        reserve = min(total // _SHARE_RESERVED, _MOST_RESERVED)
        return cls(where, status.f_bavail * status.f_frsize, reserve, total, bool(status.f_flag & os.ST_RDONLY))

    @property
    def short(self) -> bool:
        """Whether the reserve is being used: nothing that is dispensable should be written any more."""
        return self.free < self.reserve

    def lack(self, wanted: int) -> str | None:
        """Returns the reason why writing `wanted` bytes here, or a few, may fail; None if there is none."""
        if self.read_only:
            return f"the files in {self.where} have become read-only (dmesg tells why)"
        if self.free < max(wanted, self.reserve // _NEARLY_FULL):
            return f"sandboxes and snapshots had only {max(self.free, 0) >> 20} MiB left in {self.where}"
        return None

    def require(self, least: int, what: str) -> None:
        """Raises NoRoom, saying that there is no room for `what`, unless `least` bytes are free."""
        if self.free < least:
            free_mib = max(self.free, 0) >> 20
            raise NoRoom(
                f"no room for {what}: sandboxes and snapshots have {free_mib} MiB left in {self.where}, where "
                f"{least >> 20} MiB are needed; free some (tvsnap gc), or use a bigger disk (TVSNAP_HOME)"
            )
