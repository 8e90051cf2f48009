"""The local backend: sandboxes in namespaces on this machine, forked from snapshots, without a daemon."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

from tvsnap.guest.protocol import BARE, INIT
from tvsnap.guest.services import ENVIRONMENT, binds
from tvsnap.host import attempts, native
from tvsnap.host.attempts import AttemptFailed
from tvsnap.host.disk import DiskSpace
from tvsnap.host.owners import has_live_owner, is_alive, sweep
from tvsnap.model.errors import (
    ForkFailed,
    InfrastructureError,
    MachineLacks,
    NotRestorable,
    SnapshotUnusable,
)
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Captures, ReapReport, SnapshotInfo
from tvsnap.sandboxes import fixed_clock
from tvsnap.sandboxes.criu import refusals
from tvsnap.sandboxes.criu.binary import OLDEST_CRIU, criu_version, find_criu
from tvsnap.sandboxes.criu.client import Criu
from tvsnap.sandboxes.fixed_clock import StoppedClock
from tvsnap.sandboxes.kernel import inheritance
from tvsnap.sandboxes.local import guest_layer, portability
from tvsnap.sandboxes.local.cgroups import CgroupTree
from tvsnap.sandboxes.local.checkpointing import Taker
from tvsnap.sandboxes.local.holders import Holders
from tvsnap.sandboxes.local.id_ranges import IdRanges
from tvsnap.sandboxes.local.inode_paths import Places
from tvsnap.sandboxes.local.pool import Pool, Resources
from tvsnap.sandboxes.local.sandbox import LocalSandbox
from tvsnap.sandboxes.local.snapshot_store import NODES, Snapshots, size_of
from tvsnap.sandboxes.local.staging import Gate, LocalStaged
from tvsnap.sandboxes.local.storage.layers import open_storage
from tvsnap.sandboxes.looks import observing
from tvsnap.sandboxes.looks.seen_files import SnapshotFiles
from tvsnap.sandboxes.network.gateway import Gateway
from tvsnap.sandboxes.network.settings import NetworkSettings
from tvsnap.sandboxes.repairs.repair import Fork
from tvsnap.sandboxes.repairs.time_wait import TimeWaits
from tvsnap.sandboxes.shell.image import restore

COLUMNS, ROWS = 80, 24
_ROOT = Path("/run/root")
"""Path at which launch.c mounts a sandbox's root, in a separate mount namespace."""
START_PAUSES = (0.05, 0.2)
"""Seconds between the attempts at a start."""
FORK_PAUSES = (0.05, 0.2, 0.8, 2.0)
"""The same for a fork: more, because there may be no other way to its state."""
_CLEARED_AFTER = 60.0
"""Seconds to wait, on request, until the kernel has freed the space of deleted files."""


class LocalBackend:
    """The sandboxes of one owner (process) in one data directory. See `tvsnap.sandboxes.protocol.Backend`."""

    name = "local"

    def __init__(self, home: Path, owner: str, network: NetworkSettings | None = None) -> None:
        """Opens the backend; raises MachineLacks, with the remedy, if this machine lacks something essential.

        Args:
            home: the data directory.
            owner: this process's claim on it, by which its remains are recognised.
            network: the host's resources for sandboxes with a network; by default those in the environment.
        """
        self._home = home
        self._owner = owner
        self.network_settings = network or NetworkSettings.of_environment()
        self.gateway = Gateway(home, self.network_settings)
        if os.geteuid() != 0:
            raise MachineLacks("the local backend needs root for namespaces, mounts and CRIU (tvsnap doctor)")
        if platform.system() != "Linux":
            raise MachineLacks(f"the local backend needs Linux, this is {platform.system()}")
        for program in (native.LAUNCH, native.INIT, native.FIXED, native.CRIU_PLUGIN):
            if not program.exists():
                raise MachineLacks(f"{program.name} was not built with the package; make native")
        self._criu = _usable_criu()
        self.captures = Captures(processes=self._criu is not None, shell=True)
        self.platform = "; ".join([platform.machine(), *inheritance.unusual()])
        self._ranges = _id_ranges(self._criu)
        self._cgroups = CgroupTree.find(home)
        self._storage = open_storage(home)
        self._guest_layer = guest_layer.install(home / "guest", owner)
        self._snapshots = Snapshots(self._storage, owner, self._guest_layer.name)
        self._pool = Pool(
            home,
            owner,
            storage=self._storage,
            cgroups=self._cgroups,
            ranges=self._ranges,
            gateway=self.gateway,
            guest_layer=self._guest_layer,
            snapshots=self._snapshots,
        )
        self._holders = Holders(owner, self._cgroups, self._criu, self._snapshots) if self._criu else None
        self._taker = Taker(self._storage, self._snapshots, self._criu, self._holders)
        self._sandboxes: dict[str, LocalSandbox] = {}
        self._staged: WeakSet[LocalStaged] = WeakSet()
        self._trees: dict[str, observing.ImageTree] = {}
        self._files = SnapshotFiles()
        self._lock = threading.Lock()
        self._pool.template()

    def room(self) -> DiskSpace:
        """Returns the disk space left for sandboxes and snapshots."""
        return self._storage.room()

    # -- sandboxes ----------------------------------------------------------------------------------------------------

    def start(self, image: Image, limits: Limits) -> LocalSandbox:
        return attempts.repeat(
            lambda: self._start(image, limits, self._pool.template()),
            START_PAUSES,
            lasting=InfrastructureError,
            passing=InfrastructureError,
        )

    def fork(self, snapshot: str, image: Image, limits: Limits) -> LocalSandbox:
        gate = Gate()
        gate.open()
        return self._fork_by(gate, snapshot, image, limits)

    def stage(self, snapshot: str, image: Image, limits: Limits) -> LocalStaged | None:
        if not self._snapshots.check(snapshot):
            return None
        staged = LocalStaged(lambda gate: self._fork_by(gate, snapshot, image, limits), snapshot)
        with self._lock:
            self._staged.add(staged)
        return staged

    def _fork_by(self, gate: Gate, snapshot: str, image: Image, limits: Limits) -> LocalSandbox:
        """Makes a fork, which waits at a gate before it runs."""
        sandbox = attempts.repeat(
            lambda: self._fork(gate, snapshot, image, limits), FORK_PAUSES, lasting=NotRestorable, passing=ForkFailed
        )
        if not gate.was_used:
            try:
                self._refuse_deleted(snapshot)
            except BaseException:
                sandbox.close()
                raise
        return sandbox

    def _refuse_deleted(self, snapshot: str) -> None:
        """Raises SnapshotUnusable if a snapshot was deleted while it was read: CRIU takes missing images for empty."""
        if not self._snapshots.is_there(snapshot):
            raise SnapshotUnusable(f"snapshot {snapshot} was deleted while it was being forked")

    def _fork(self, gate: Gate, snapshot: str, image: Image, limits: Limits) -> LocalSandbox:
        gate.was_used = False
        files = self._snapshots.files(snapshot)
        shell = self._snapshots.shell(snapshot)
        changes = self._snapshots.changes(snapshot)
        if shell is None:
            sandbox = self._restore(gate, snapshot, image, limits)
            sandbox.changes_settled = changes
            return sandbox
        noted = self._snapshots.noted(snapshot)
        sandbox = self._start(image, limits, files, noted.clock, bare=True)
        sandbox.changes_settled = changes
        try:
            noted.bring_back(Fork(sandbox.init, sandbox.cgroup.pids, -1, sandbox.time_waits))  # none is beside a shell
            if noted.clock:
                shell = replace(shell, origin=shell.origin + noted.clock.gap_s)
            restore(sandbox.guest(), shell, sandbox.number_after)
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    def _start(
        self, image: Image, limits: Limits, layer: Path, stopped: StoppedClock | None = None, *, bare: bool = False
    ) -> LocalSandbox:
        """Starts a sandbox on a copy of a layer.

        Args:
            image: the sandbox's image.
            limits: what it may use.
            layer: an empty one, or that of a snapshot.
            stopped: the snapshot's clock, if it has one.
            bare: start a shell that will be made like another one.
        """
        with self._pool.set_aside(image, limits, layer) as resources:
            environment = {**ENVIRONMENT, **image.env, **binds(image), **(BARE if bare else {})}
            command = [INIT, "serve", str(COLUMNS), str(ROWS), image.user, image.workdir]
            options = self._pool.options(resources)
            options += ["--hostname", image.hostname, *(["--no-new-privileges"] if image.no_new_privileges else [])]
            clock = stopped.go_on() if stopped else fixed_clock.Clock.begun(image)
            fixed_clock.write_page(resources.layer / "upper", self._guest_layer, image, clock)
            run = subprocess.run(
                [native.LAUNCH, "start", *options, "--", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
            if run.returncode:
                reason = f"a sandbox of {image.name} did not start: {run.stderr.strip()}"
                raise AttemptFailed(reason, machine=refusals.is_trouble(run.stderr))
            self._pool.open_network(resources, int(run.stdout))
            return self._adopt(resources, int(run.stdout), clock=clock)

    def _restore(self, gate: Gate, snapshot: str, image: Image, limits: Limits) -> LocalSandbox:
        """Restores the processes of a snapshot on a copy of its files; they run once the gate is open."""
        if self._criu is None:
            raise NotRestorable(f"snapshot {snapshot} holds live processes and this machine has no CRIU")
        noted = self._snapshots.noted(snapshot)
        forks: list[Fork] = []
        clocks: list[fixed_clock.Clock] = []

        with (
            self._pool.set_aside(image, limits, self._snapshots.files(snapshot)) as resources,
            self._snapshots.processes(snapshot) as images,
            self._lent(snapshot) as holder,
        ):

            def bring_back(init: int) -> None:
                self._pool.open_network(resources, init)
                forks.append(Fork(init, resources.cgroup.pids, images, TimeWaits(init)))
                noted.bring_back(forks[0])
                if not gate.is_open:
                    self._refuse_deleted(snapshot)
                    gate.stand(resources.cgroup)
                if noted.clock:  # last, because time counts from here on; nothing runs yet
                    clocks.append(noted.clock.go_on())
                    fixed_clock.write_page(resources.layer / "upper", self._guest_layer, image, clocks[0])

            holder_options = [] if holder is None else ["--holder", str(holder)]
            init = self._criu.restore(
                images,
                _ROOT,
                [f"mnt[{name}]:{NODES}/{name}" for name in native.DEVICES],
                [
                    str(native.LAUNCH),
                    "restore",
                    *self._criu.directories,
                    *self._pool.options(resources),
                    *holder_options,
                    "--",
                ],
                bring_back if noted.repairs or noted.clock or image.network.attached or not gate.is_open else None,
                [] if holder is None else [holder],
            )
            return self._adopt(resources, init, *forks, clock=clocks[0] if clocks else None)

    def _lent(self, snapshot: str) -> contextlib.AbstractContextManager[int | None]:
        """See `Holders.lent`."""
        return self._holders.lent(snapshot) if self._holders else contextlib.nullcontext()

    def _adopt(
        self,
        resources: Resources,
        init: int,
        fork: Fork | None = None,
        *,
        clock: fixed_clock.Clock | None,
    ) -> LocalSandbox:
        """Returns the sandbox of a PID 1 that has started; `fork` has its repairs, if there were any."""
        sandbox = LocalSandbox(
            resources,
            self._pool,
            init,
            checkpoint=self._checkpoint,
            on_close=self._forget,
            tree=self._tree(resources.image),
            files=self._files,
            time_waits=fork.time_waits if fork else TimeWaits(init),
            clock=clock,
            places=Places(init, self._pool.layers(resources), fork.watched if fork else {}),
        )
        with self._lock:
            self._sandboxes[sandbox.id] = sandbox
        try:
            if resources.origin:
                self._taker.begin_at(sandbox, resources.origin)
            sandbox.guest()
            self._pool.keep_limit(resources)
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    def _tree(self, image: Image) -> observing.ImageTree:
        with self._lock:
            if image.digest not in self._trees:
                self._trees[image.digest] = observing.ImageTree(self._guest_layer, *image.layers, root=image.rootfs)
            return self._trees[image.digest]

    def _forget(self, sandbox: LocalSandbox) -> None:
        """Removes a sandbox that has ended from the list."""
        with self._lock:
            self._sandboxes.pop(sandbox.id, None)

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def _checkpoint(self, sandbox: LocalSandbox) -> SnapshotInfo:
        """Takes a snapshot of a sandbox; see `Sandbox.checkpoint`."""
        info = self._taker.take(sandbox)
        self._files.note(info.id, sandbox.contents, sandbox.last_look())
        return info

    def snapshots(self) -> list[str]:
        return self._snapshots.ids()

    # -- other machines -----------------------------------------------------------------------------------------------

    def requirements(self, snapshot: str) -> Mapping[str, Any]:
        processes = self._snapshots.check(snapshot)
        return portability.requirements(self._guest_layer.name, self._criu if processes else None)

    def unfit(self, requirements: Mapping[str, Any]) -> str | None:
        return portability.unfit(requirements, self._guest_layer.name, self._criu)

    def trees(self, snapshot: str) -> tuple[Mapping[str, Any], Mapping[str, Path]]:
        self._snapshots.check(snapshot)
        return self._snapshots.manifest(snapshot), self._snapshots.trees(snapshot)

    def adopt(self, said: Mapping[str, Any], fill: Callable[[str, Path], None]) -> SnapshotInfo:
        room = self._storage.room()
        room.require(room.reserve, "a snapshot")
        return self._snapshots.adopt(said, fill)

    def delete_snapshot(self, snapshot: str) -> None:
        if self._holders:
            self._holders.drop(snapshot)
        self._snapshots.delete(snapshot)
        self._files.drop(snapshot)

    # -- housekeeping -------------------------------------------------------------------------------------------------

    def reap(self) -> ReapReport:
        sandboxes = 0
        for owner in self._cgroups.owners():
            if owner == self._owner or is_alive(self._home, owner):
                continue
            for cgroup in self._cgroups.sandboxes(owner):
                sandboxes += cgroup.destroy()
            self._cgroups.remove_owner(owner)
        temporary = sweep(
            self._pool.live, lambda name: name != "template" and self._is_left(name), self._storage.delete
        )
        remove = partial(shutil.rmtree, ignore_errors=True)
        temporary += sweep(self._guest_layer.parent, lambda name: "." in name and self._is_left(name), remove)
        return ReapReport(sandboxes, self._snapshots.sweep(self._is_left), temporary)

    def _is_left(self, name: str) -> bool:
        return not name.startswith(f"{self._owner}.") and not has_live_owner(self._home, name)

    def reclaim(self) -> int:
        return self._storage.reclaim(_CLEARED_AFTER)

    def occupied(self) -> int | None:
        """See `Occupying.occupied`."""
        return self._storage.occupied()

    def disk_usage(self) -> Mapping[str, int]:
        usage = {"snapshots": 0, "sandboxes": 0}
        for snapshot in self.snapshots():
            with contextlib.suppress(InfrastructureError):
                usage["snapshots"] += self._snapshots.manifest(snapshot)["size"]
        for entry in os.scandir(self._pool.live):
            usage["sandboxes"] += size_of(Path(entry.path) / "upper")
        return usage

    def close(self) -> None:
        with self._lock:
            staged, sandboxes = list(self._staged), list(self._sandboxes.values())
        for fork in staged:
            fork.close()
        for sandbox in sandboxes:
            sandbox.close()
        if self._holders:
            self._holders.close()
        self.gateway.close()
        self._cgroups.remove_owner(self._owner)
        if self._ranges:
            self._ranges.close()
        self._storage.close()


def _usable_criu() -> Criu | None:
    """Returns CRIU, or None if it is missing and `TVSNAP_WITHOUT_CRIU=1` accepts that."""
    binary = find_criu()
    if binary is not None and criu_version(binary) >= OLDEST_CRIU:
        return Criu(binary)
    if os.environ.get("TVSNAP_WITHOUT_CRIU"):
        return None
    wanted = ".".join(map(str, OLDEST_CRIU))
    have = f"{binary} is too old" if binary else "none was found"
    raise MachineLacks(
        f"CRIU {wanted} or newer is needed to snapshot live processes, {have}; tvsnap setup brings it, "
        f"TVSNAP_WITHOUT_CRIU=1 goes on with snapshots of idle shells only (tvsnap doctor)"
    )


def _id_ranges(criu: Criu | None) -> IdRanges | None:
    """Returns the source of user ids for each sandbox; None if all have the same because forks cannot have others."""
    if criu is None or "owners" in criu.additions:
        with contextlib.suppress(OSError):  # /run cannot be written
            return IdRanges()
    return None
