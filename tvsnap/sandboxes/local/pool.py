"""A sandbox's share of this machine, reserved before it starts and released when it has ended."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tvsnap.host import native
from tvsnap.host.attempts import AttemptFailed
from tvsnap.model.errors import InfrastructureError, SandboxDied, SnapshotUnusable
from tvsnap.model.images import UID_BASE, UID_COUNT, Image
from tvsnap.model.limits import Limits
from tvsnap.sandboxes.local import terminals
from tvsnap.sandboxes.local.cgroups import Cgroup, CgroupTree
from tvsnap.sandboxes.local.id_ranges import IdRanges
from tvsnap.sandboxes.local.snapshot_store import Snapshots
from tvsnap.sandboxes.local.storage.layers import CopyStorage
from tvsnap.sandboxes.network.gateway import Gateway
from tvsnap.sandboxes.sealing import DISK_ERRORS

_FILE_SYSTEM_ID = b"tvsnap's sandbox"
"""Every sandbox's root has this id: 16 bytes, half of which `stat -f` shows."""
_CLEARED_WITHIN = 10.0
"""Seconds to wait, if a sandbox lacks room, until the kernel has freed the space of deleted files."""
_LOOKS_FOR_DEAD = 32
"""Sandboxes that, when they end, also reap the dead processes of a failed start."""
_ENDED_WITHIN = 1.0
"""Seconds to wait for killed processes to end."""
_NO_ROOM = ("No space left on device", "ENOSPC")
_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class Resources:
    """A sandbox's resources on this machine, reserved before its processes start.

    Attributes:
        id: the sandbox's name.
        image: its image.
        limits: what it may use.
        layer: directory with the writable layer (`upper`, `work`).
        cgroup: its control groups.
        own_users: the first of the host's user ids that only this sandbox has; None if it has none.
        origin: the snapshot that it is forked from; empty if it is started afresh.
        errors: the disk's error count before it was made.
    """

    id: str
    image: Image
    limits: Limits
    layer: Path
    cgroup: Cgroup
    own_users: int | None
    origin: str
    errors: int


class Pool:
    """The disk space, control groups, user ids and ways to the network of one owner's sandboxes. Thread-safe."""

    def __init__(
        self,
        home: Path,
        owner: str,
        *,
        storage: CopyStorage,
        cgroups: CgroupTree,
        ranges: IdRanges | None,
        gateway: Gateway,
        guest_layer: Path,
        snapshots: Snapshots,
    ) -> None:
        """
        Args:
            home: the data directory.
            owner: the process's claim on it, with which the names of sandboxes begin.
            storage: has their writable layers.
            cgroups: the control groups of all owners.
            ranges: the source of user ids for each sandbox; None if all have the same.
            gateway: their ways to the network.
            guest_layer: tvsnap's own files in them.
            snapshots: those that they are forked from.
        """
        self.live = storage.path / "live"
        self.live.mkdir(exist_ok=True, mode=0o700)
        self.gateway = gateway
        self._home = home
        self._owner = owner
        self._storage = storage
        self._cgroups = cgroups
        self._ranges = ranges
        self._guest_layer = guest_layer
        self._snapshots = snapshots
        self._numbers = itertools.count(1)
        self._looks_for_dead = 0  # how many are still to be made, because a sandbox failed to start
        self._full = -math.inf  # when the storage was last found too full, by time.monotonic()

    def template(self) -> Path:
        """Returns an empty writable layer, which is copied for each new sandbox."""
        template = self.live / "template"
        if not (template / "ready").exists():
            unfinished = self._snapshots.temporary / f"{self._owner}.template"
            self._storage.create(unfinished)
            for name in ("upper", "work"):
                (unfinished / name).mkdir()
                os.chown(unfinished / name, UID_BASE, UID_BASE)
                os.chmod(unfinished / name, 0o755)
            os.setxattr(unfinished / "upper", "trusted.overlay.uuid", _FILE_SYSTEM_ID)  # otherwise random
            (unfinished / "ready").touch()
            try:
                unfinished.rename(template)
            except OSError:  # another process was quicker
                self._storage.delete(unfinished)
        return template

    @contextlib.contextmanager
    def set_aside(self, image: Image, limits: Limits, layer: Path) -> Iterator[Resources]:
        """Reserves a new sandbox's resources, and releases them if the sandbox fails to start."""
        terminals.await_one()
        room = self._storage.room()
        if room.free < room.reserve // 2:  # the space of files just deleted may not be free yet
            self._storage.reclaim(_CLEARED_WITHIN)
            room = self._storage.room()
        room.require(room.reserve // 2, "a sandbox")
        id = f"{self._owner}.{next(self._numbers)}"
        errors = self._storage.errors()
        cgroup = self._cgroups.create(self._owner, id, limits)
        resources = Resources(
            id,
            image,
            limits,
            layer=self.live / id,
            cgroup=cgroup,
            own_users=self._ranges.take() if self._ranges else None,
            origin="" if layer.parent == self.live else layer.parent.name,
            errors=errors,
        )
        try:
            self._copy_layer(layer, resources)
            yield resources
        except BaseException:
            self._looks_for_dead = _LOOKS_FOR_DEAD
            pids = resources.cgroup.pids()
            resources.cgroup.destroy()
            _reap(pids)
            self.take_back(resources)
            raise

    def _copy_layer(self, layer: Path, resources: Resources) -> None:
        """Gives a sandbox its writable layer: a copy of an empty one, or of a snapshot's."""
        try:
            self._storage.copy(layer, resources.layer, limit=resources.limits.disk)
        except FileNotFoundError:
            raise SnapshotUnusable(f"the files of {layer.parent.name} are gone") from None
        except OSError as error:
            reason = f"no files for a sandbox in {self._home}: {error.strerror}"
            if error.errno not in DISK_ERRORS:
                raise AttemptFailed(reason, machine=True) from None
            raise InfrastructureError(
                f"{reason}; see to room on its disk (dmesg tells what the kernel made of it), then start anew"
            ) from None
        if not resources.origin:  # the root directory gets the times of the image's
            about = resources.image.rootfs.stat()
            os.utime(resources.layer / "upper", ns=(about.st_atime_ns, about.st_mtime_ns))

    def options(self, resources: Resources) -> list[str]:
        """Returns the options for launch.c that describe a sandbox's resources."""
        options = [item for path in resources.cgroup.paths for item in ("--cgroup", path)]
        if self._storage.device:
            options += ["--pool", self._storage.device]
        else:
            options += ["--pool-dir", str(self._storage.path)]
        options += ["--live", f"live/{resources.id}"]
        for lower in self.layers(resources)[1:]:
            options += ["--lower", str(lower)]
        options += [*native.DEVICE_OPTIONS, "--ids", str(UID_BASE), str(UID_COUNT)]
        return options + (["--own", str(resources.own_users)] if resources.own_users else [])

    def layers(self, resources: Resources) -> list[Path]:
        """Returns the layers of a sandbox's root, topmost first."""
        return [resources.layer / "upper", self._guest_layer, *resources.image.layers]

    def open_network(self, resources: Resources, init: int) -> None:
        """Opens a sandbox's way out to the network, if it is to have one, before any of its processes runs."""
        if resources.image.network.attached:
            self.gateway.open(resources.id, init, resources.image.network)

    def keep_limit(self, resources: Resources) -> None:
        """Lets a sandbox use again the disk space that it has freed."""
        with contextlib.suppress(OSError):  # the pool is full; the next observation tries again
            self._storage.keep_limit(resources.layer, resources.limits.disk)

    def machine_fault(self, resources: Resources, looked: float, message: str) -> str | None:
        """See `Sandbox.machine_fault`: an error of the disk, or too little room, looks like a command's failure.

        `looked` is when the sandbox was last checked, by time.monotonic().
        """
        if self._storage.errors() != resources.errors:
            self._snapshots.distrust(resources.origin)
            raise SandboxDied(f"the disk below the pool of {self._home} returned errors")
        lack = self._storage.lack(0)
        is_about_room = any(word in message for word in _NO_ROOM)
        if lack:
            self._full = time.monotonic()
            if is_about_room:
                raise InfrastructureError(f"a call failed for want of room: {lack}; free some (tvsnap gc)")
            return lack
        if self._full > looked:  # found while another sandbox was checked
            return f"sandboxes and snapshots had too little room in {self._home} meanwhile"
            # At its own limit a sandbox gets quota errors; if the pool has less room than that, it may be the pool.
        return self._storage.lack(resources.limits.disk or _UNLIMITED) if is_about_room else None

    def take_back(self, resources: Resources) -> None:
        """Releases the resources of a sandbox that has ended, except its control groups, which are gone."""
        if self._looks_for_dead:  # processes that CRIU itself has killed may take a while to end
            self._looks_for_dead -= 1
            _reap_ended()
        self.gateway.close_way(resources.id)
        self._storage.delete(resources.layer)
        if self._ranges and resources.own_users:
            self._ranges.give_back(resources.own_users)


def _reap_ended() -> None:
    """Reaps children that were a sandbox's PID 1, also those with unknown process ids."""
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            for pid in map(int, path.read_text().split()):
                with contextlib.suppress(OSError):
                    status = Path(f"/proc/{pid}/status").read_text()
                    # No other child of this process is PID 1 of a PID namespace.
                    if re.search(r"^State:\s+Z.*^NSpid:\s+\d+\s+1$", status, re.MULTILINE | re.DOTALL):
                        os.waitpid(pid, os.WNOHANG)


def _reap(pids: Iterable[int]) -> None:
    """Waits for those of a sandbox's killed processes that are children of this process."""
    deadline = time.monotonic() + _ENDED_WITHIN
    for pid in pids:
        with contextlib.suppress(ChildProcessError):  # it is not a child of ours
            while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
                time.sleep(0.001)
