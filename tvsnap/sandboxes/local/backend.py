"""The local backend: sandboxes in namespaces on this machine, forked from snapshots, without a daemon."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import platform
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

from tvsnap.guest.protocol import BARE, GUEST_FILES, INIT
from tvsnap.guest.services import ENVIRONMENT, binds
from tvsnap.host import attempts, native
from tvsnap.host.attempts import AttemptFailed
from tvsnap.host.disk import DiskSpace
from tvsnap.host.owners import has_live_owner, is_alive, sweep
from tvsnap.model.errors import (
    CheckpointFailed,
    ForkFailed,
    InfrastructureError,
    MachineLacks,
    NotCheckpointable,
    NotRestorable,
    SandboxDied,
    SnapshotUnusable,
)
from tvsnap.model.images import UID_BASE, UID_COUNT, Image
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Captures, ReapReport, SnapshotInfo
from tvsnap.sandboxes import fixed, observing
from tvsnap.sandboxes.criu import directory_times, refusals
from tvsnap.sandboxes.criu.binary import OLDEST_CRIU, criu_version, find_criu
from tvsnap.sandboxes.criu.client import Criu
from tvsnap.sandboxes.fixed import StoppedClock
from tvsnap.sandboxes.local import portability, terminals
from tvsnap.sandboxes.local.cgroups import CgroupTree
from tvsnap.sandboxes.local.id_ranges import IdRanges
from tvsnap.sandboxes.local.places import Places
from tvsnap.sandboxes.local.sandbox import LocalSandbox, Resources
from tvsnap.sandboxes.local.snapshot_store import NODES, Noted, Snapshots, size_of
from tvsnap.sandboxes.local.staging import Gate, LocalStaged
from tvsnap.sandboxes.local.storage.layers import open_storage
from tvsnap.sandboxes.network.gateway import Gateway
from tvsnap.sandboxes.network.settings import NetworkSettings
from tvsnap.sandboxes.processes import inheritance, processors, settings, socket_options, tcp, tcp_ends, watches
from tvsnap.sandboxes.processes.time_wait import TimeWaits
from tvsnap.sandboxes.sealing import DISK_ERRORS
from tvsnap.sandboxes.seen_files import SnapshotFiles
from tvsnap.sandboxes.shell.image import restore

COLUMNS, ROWS = 80, 24
_ROOT = Path("/run/root")
"""Where launch.c mounts a sandbox's root, in a separate mount namespace."""
_FILE_SYSTEM_ID = b"tvsnap's sandbox"
"""Every sandbox's root has this id: 16 bytes, half of which `stat -f` shows."""


START_PAUSES = (0.05, 0.2)
CHECKPOINT_PAUSES = (0.05, 0.2)
"""Seconds between the attempts at a checkpoint: few, since the next call in the sandbox waits for the last one."""
FORK_PAUSES = (0.05, 0.2, 0.8, 2.0)
"""The same for a fork: more, since there may be no other way to its state."""
_CLEARED_WITHIN, _CLEARED_AFTER = 10.0, 60.0
"""Seconds to wait until the kernel has freed what was deleted: when a sandbox lacks room, and on request."""
_LOOKS_FOR_DEAD = 32
"""After a failed start, the ends of so many sandboxes also reap its dead processes."""
_ENDED_WITHIN = 1.0
"""Seconds to wait for killed processes to end."""
_NO_ROOM = ("No space left on device", "ENOSPC")
_UNLIMITED = 1 << 62


class LocalBackend:
    """The sandboxes of one owner (process) in one data directory. See `tvsnap.sandboxes.protocol.Backend`."""

    name = "local"

    def __init__(self, home: Path, owner: str, network: NetworkSettings | None = None) -> None:
        """Opens the backend; raises MachineLacks, with the remedy, if this machine lacks something essential.

        Args:
            home: the data directory.
            owner: this process's claim on it, which names what the process leaves behind.
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
        self._live = self._storage.path / "live"
        self._live.mkdir(exist_ok=True, mode=0o700)
        self._guest_layer = _install_guest(home / "guest", owner)
        self._snapshots = Snapshots(self._storage, owner, self._guest_layer.name)
        self._numbers = itertools.count(1)
        self._sandboxes: dict[str, LocalSandbox] = {}
        self._staged: WeakSet[LocalStaged] = WeakSet()
        self._trees: dict[str, observing.ImageTree] = {}
        self._files = SnapshotFiles()
        self._looks_for_dead = 0  # how many are still to be made, since a sandbox failed to start
        self._full = -math.inf  # when the pool was last found too full, by time.monotonic()
        self._lock = threading.Lock()
        self._template()

    def room(self) -> DiskSpace:
        """Returns the disk space left for sandboxes and snapshots."""
        return self._storage.room()

    # -- sandboxes ----------------------------------------------------------------------------------------------------

    def start(self, image: Image, limits: Limits) -> LocalSandbox:
        return attempts.repeat(
            lambda: self._start(image, limits, self._template()),
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
            sandbox.time_waits.bring_back(noted.closed)
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
        with self._set_aside(image, limits, layer) as resources:
            environment = {**ENVIRONMENT, **image.env, **binds(image), **(BARE if bare else {})}
            command = [INIT, "serve", str(COLUMNS), str(ROWS), image.user, image.workdir]
            options = self._options(resources)
            options += ["--hostname", image.hostname, *(["--no-new-privileges"] if image.no_new_privileges else [])]
            clock = stopped.go_on() if stopped else fixed.Clock.begun(image)
            fixed.write_page(resources.layer / "upper", self._guest_layer, image, clock)
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
            self._open_network(resources, int(run.stdout))
            return self._adopt(resources, int(run.stdout), clock=clock)

    def _restore(self, gate: Gate, snapshot: str, image: Image, limits: Limits) -> LocalSandbox:
        """Restores the processes of a snapshot on a copy of its files; they run once the gate is open."""
        if self._criu is None:
            raise NotRestorable(f"snapshot {snapshot} holds live processes and this machine has no CRIU")
        noted = self._snapshots.noted(snapshot)
        time_waits: list[TimeWaits] = []
        clocks: list[fixed.Clock] = []
        watched: dict[int, str] = {}

        with (
            self._set_aside(image, limits, self._snapshots.files(snapshot)) as resources,
            self._snapshots.processes(snapshot) as images,
        ):

            def bring_back(init: int) -> None:
                self._open_network(resources, init)
                directory_times.set_again(f"/proc/{init}/root", noted.directories)
                if noted.bound:
                    processors.bind(noted.bound, init, resources.cgroup.pids())
                if noted.settings:
                    settings.set_again(noted.settings, init, resources.cgroup.pids())
                options = socket_options.FILE.read(images) if noted.options else []
                if options:
                    socket_options.bring_back(init, resources.cgroup.pids(), options, late=False)
                if noted.connections:
                    tcp_ends.bring_back(init, resources.cgroup.pids(), tcp.FILE.read(images))
                if options:
                    socket_options.bring_back(init, resources.cgroup.pids(), options, late=True)
                if noted.watches:
                    watched.update(watches.bring_back(init, resources.cgroup.pids(), watches.FILE.read(images)))
                if noted.closed:
                    time_waits.append(TimeWaits(init))
                    time_waits[0].bring_back(noted.closed)
                if not gate.is_open:
                    self._refuse_deleted(snapshot)
                    gate.stand(resources.cgroup)
                if noted.clock:  # last, since time counts from here on; nothing runs yet
                    clocks.append(noted.clock.go_on())
                    fixed.write_page(resources.layer / "upper", self._guest_layer, image, clocks[0])

            init = self._criu.restore(
                images,
                _ROOT,
                [f"mnt[{name}]:{NODES}/{name}" for name in native.DEVICES],
                [str(native.LAUNCH), "restore", *self._criu.directories, *self._options(resources), "--"],
                bring_back if noted != Noted() or image.network.attached or not gate.is_open else None,
            )
            return self._adopt(resources, init, *time_waits, clock=clocks[0] if clocks else None, watched=watched)

    def _open_network(self, resources: Resources, init: int) -> None:
        """Opens a sandbox's way out to the network, if it is to have one, before any of its processes runs."""
        if resources.image.network.attached:
            self.gateway.open(resources.id, init, resources.image.network)

    @contextlib.contextmanager
    def _set_aside(self, image: Image, limits: Limits, layer: Path) -> Iterator[Resources]:
        """Reserves a new sandbox's resources, and releases them if the sandbox fails to start."""
        terminals.await_one()
        room = self._storage.room()
        if room.free < room.reserve // 2:  # what was just deleted may not be free yet
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
            layer=self._live / id,
            cgroup=cgroup,
            own_users=self._ranges.take() if self._ranges else None,
            origin="" if layer.parent == self._live else layer.parent.name,
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
            self._take_back(resources)
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

    def _options(self, resources: Resources) -> list[str]:
        """Returns the options for launch.c that describe a sandbox's resources."""
        options = [item for path in resources.cgroup.paths for item in ("--cgroup", path)]
        if self._storage.device:
            options += ["--pool", self._storage.device]
        else:
            options += ["--pool-dir", str(self._storage.path)]
        options += ["--live", f"live/{resources.id}"]
        for lower in self._layers(resources)[1:]:
            options += ["--lower", str(lower)]
        options += [*native.DEVICE_OPTIONS, "--ids", str(UID_BASE), str(UID_COUNT)]
        return options + (["--own", str(resources.own_users)] if resources.own_users else [])

    def _layers(self, resources: Resources) -> list[Path]:
        """Returns the layers of a sandbox's root, topmost first."""
        return [resources.layer / "upper", self._guest_layer, *resources.image.layers]

    def _adopt(
        self,
        resources: Resources,
        init: int,
        time_waits: TimeWaits | None = None,
        *,
        clock: fixed.Clock | None,
        watched: Mapping[int, str] = {},
    ) -> LocalSandbox:
        """Returns the sandbox whose PID 1 has started."""
        contents, look = self._files.of(resources.origin)
        sandbox = LocalSandbox(
            resources,
            self,
            init,
            tree=self._tree(resources.image),
            contents=contents,
            look=look,
            time_waits=time_waits or TimeWaits(init),
            clock=clock,
            places=Places(init, self._layers(resources), watched),
        )
        with self._lock:
            self._sandboxes[sandbox.id] = sandbox
        try:
            sandbox.guest()
            self.keep_limit(sandbox)
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    def _tree(self, image: Image) -> observing.ImageTree:
        with self._lock:
            if image.digest not in self._trees:
                self._trees[image.digest] = observing.ImageTree(self._guest_layer, *image.layers, root=image.rootfs)
            return self._trees[image.digest]

    def keep_limit(self, sandbox: LocalSandbox) -> None:
        """Lets a sandbox use again the disk space that it has freed."""
        with contextlib.suppress(OSError):  # the pool is full; the next observation tries again
            self._storage.keep_limit(sandbox.layer, sandbox.limits.disk)

    def machine_fault(self, sandbox: LocalSandbox, said: str) -> str | None:
        """See `Sandbox.machine_fault`: an error of the disk, or too little room, looks like a command's failure."""
        if self._storage.errors() != sandbox.errors:
            self._snapshots.distrust(sandbox.origin)
            raise SandboxDied(f"the disk below the pool of {self._home} returned errors")
        looked, sandbox.looked = sandbox.looked, time.monotonic()
        lack = self._storage.lack(0)
        told = any(word in said for word in _NO_ROOM)
        if lack:
            self._full = time.monotonic()
            if told:
                raise InfrastructureError(f"a call failed for want of room: {lack}; free some (tvsnap gc)")
            return lack
        if self._full > looked:  # found while another sandbox was checked
            return f"sandboxes and snapshots had too little room in {self._home} meanwhile"
            # At its own limit a sandbox gets quota errors; if the pool has less room than that, it may be the pool.
        return self._storage.lack(sandbox.limits.disk or _UNLIMITED) if told else None

    def discard(self, resources: Resources) -> None:
        """Releases the resources of a sandbox that has ended."""
        with self._lock:
            self._sandboxes.pop(resources.id, None)
        self._take_back(resources)

    def _take_back(self, resources: Resources) -> None:
        if self._looks_for_dead:  # processes that CRIU itself has killed may take a while to end
            self._looks_for_dead -= 1
            _reap_ended()
        self.gateway.close_way(resources.id)
        self._storage.delete(resources.layer)
        if self._ranges and resources.own_users:
            self._ranges.give_back(resources.own_users)

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def checkpoint(self, sandbox: LocalSandbox) -> SnapshotInfo:
        """Takes a snapshot of a sandbox; see `Sandbox.checkpoint`."""
        room = self._storage.room()
        room.require(room.reserve, "a snapshot")
        criu = self._criu

        def take() -> SnapshotInfo:
            return self._snapshots.take_processes(sandbox, criu) if criu else self._snapshots.take_shell(sandbox)

        info = attempts.repeat(take, CHECKPOINT_PAUSES, lasting=NotCheckpointable, passing=CheckpointFailed)
        self._files.note(info.id, sandbox.contents, sandbox.last_look())
        return info

    def snapshots(self) -> Iterator[str]:
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
        temporary = sweep(self._live, lambda name: name != "template" and self._is_left(name), self._storage.delete)
        remove = partial(shutil.rmtree, ignore_errors=True)
        temporary += sweep(self._guest_layer.parent, lambda name: "." in name and self._is_left(name), remove)
        snapshots, unfinished = self._snapshots.sweep(self._is_left)
        return ReapReport(sandboxes, snapshots, temporary + unfinished)

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
        for entry in os.scandir(self._live):
            usage["sandboxes"] += size_of(Path(entry.path) / "upper")
        return usage

    def close(self) -> None:
        with self._lock:
            staged, sandboxes = list(self._staged), list(self._sandboxes.values())
        for fork in staged:
            fork.close()
        for sandbox in sandboxes:
            sandbox.close()
        self.gateway.close()
        self._cgroups.remove_owner(self._owner)
        if self._ranges:
            self._ranges.close()
        self._storage.close()

    def _template(self) -> Path:
        """Returns an empty writable layer, which is copied for each new sandbox."""
        template = self._live / "template"
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


def _reap_ended() -> None:
    """Reaps children that were a sandbox's PID 1, and whose process id may not have become known."""
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
    """Returns the source of user ids for each sandbox; None if all have the same, since forks could not have others."""
    if criu is None or "owners" in criu.additions:
        with contextlib.suppress(OSError):  # /run cannot be written
            return IdRanges()
    return None


def _install_guest(directory: Path, owner: str) -> Path:
    """Installs tvsnap's files for sandboxes as a layer, which lies above any image; one for each version of them."""
    files = {name: source.read_bytes() for name, source in GUEST_FILES.items()}
    version = hashlib.sha256(b"3" + b"".join(files.values())).hexdigest()[:16]
    layer = directory / version
    if layer.exists():
        return layer
    directory.mkdir(exist_ok=True, mode=0o711)
    unfinished = directory / f"{owner}.{version}"
    for name in ("proc", "sys", "dev/pts", "dev/shm", "run/tvsnap"):
        (unfinished / name).mkdir(parents=True)
    for device in native.DEVICES:
        (unfinished / "dev" / device).touch()
    for name, target in (
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ):
        (unfinished / "dev" / name).symlink_to(target)
    for name, data in files.items():
        (unfinished / "run" / "tvsnap" / name).write_bytes(data)
    for path in (unfinished, *unfinished.rglob("*")):
        os.lchown(path, UID_BASE, UID_BASE)
        if not path.is_symlink():  # the same modes for all sandboxes, whatever the umask is here
            path.chmod(0o644 if path.parent.name == "dev" and path.is_file() else 0o755)
    (unfinished / "dev" / "shm").chmod(0o1777)
    try:
        unfinished.rename(layer)
    except OSError:  # another process was quicker
        shutil.rmtree(unfinished)
    return layer
