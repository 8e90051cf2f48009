"""Takes snapshots of sandboxes, with their processes or with an idle shell, so that all parts are of one moment.

CRIU dumps processes. If only PID 1 and the shell live, and only their memory has changed since the last dump or since
the fork, nothing but the changed pages is written, without CRIU (see `tvsnap.sandboxes.criu.changes`).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tvsnap.host import attempts, native
from tvsnap.host.attempts import AttemptFailed
from tvsnap.host.libc import closing
from tvsnap.model.errors import CheckpointFailed, InfrastructureError, NotCheckpointable, SnapshotUnusable
from tvsnap.model.images import UID_BASE, UID_COUNT
from tvsnap.model.observations import Captures, SnapshotInfo
from tvsnap.sandboxes.criu import changes, fidelity, interrupted_calls, pages
from tvsnap.sandboxes.criu.client import Criu, Held
from tvsnap.sandboxes.criu.excess import objects, refuse_excess
from tvsnap.sandboxes.kernel import allowance, paths
from tvsnap.sandboxes.local.holders import Holders
from tvsnap.sandboxes.local.sandbox import Base, LocalSandbox
from tvsnap.sandboxes.local.snapshot_store import NOTHING_LENT, SHELL, Snapshots
from tvsnap.sandboxes.local.storage.layers import CopyStorage
from tvsnap.sandboxes.looks import observe, timers
from tvsnap.sandboxes.looks.frame import Frame, Memory
from tvsnap.sandboxes.repairs import watches
from tvsnap.sandboxes.repairs.all import Noted
from tvsnap.sandboxes.repairs.directory_times import Directories
from tvsnap.sandboxes.repairs.repair import Frozen
from tvsnap.sandboxes.repairs.socket_options import Options
from tvsnap.sandboxes.repairs.sockets import Sockets
from tvsnap.sandboxes.shell.image import capture

PAUSES = (0.05, 0.2)
"""Seconds between the attempts at a checkpoint: few, because the next call in the sandbox waits for the last one."""
_WATCHES = "watches"
"""Entry of `binary.additions` of a CRIU that dumps instances of inotify without their watches."""
_OURS = 2
"""tvsnap's own processes in every sandbox: PID 1 and the shell."""
_OBJECTS = ("shm", "sem", "msg")
"""Kinds of objects of System V."""
_MOST_COMPARED = 16 << 20
"""Bytes of pages of a shell up to which they are compared here, all at once; with more, CRIU does it in parts."""
_STARTUP_FILE = ("etc", "bash.bashrc")
"""A file that every interactive bash reads, also a bare one, if the distribution's bash does so."""


class _MoreHasChanged(Exception):
    """More than files, memory and registers has changed since an earlier snapshot."""


@dataclass(frozen=True, slots=True)
class Taker:
    """Takes snapshots of the sandboxes of one backend. Thread-safe."""

    storage: CopyStorage
    snapshots: Snapshots
    criu: Criu | None  # None if this machine has none: idle shells only
    holders: Holders | None

    def take(self, sandbox: LocalSandbox) -> SnapshotInfo:
        """See `Sandbox.checkpoint`; `ProcessesDisturbed` means that the sandbox must not go on."""
        room = self.storage.room()
        room.require(room.reserve, "a snapshot")
        return attempts.repeat(lambda: self._take(sandbox), PAUSES, lasting=NotCheckpointable, passing=CheckpointFailed)

    def _take(self, sandbox: LocalSandbox) -> SnapshotInfo:
        if self.criu is None:
            return self._take_shell(sandbox)
        return self._take_changes(sandbox) or self._take_processes(sandbox, self.criu)

    def begin_at(self, sandbox: LocalSandbox, snapshot: str) -> None:
        """Notes that a sandbox has come from a verified snapshot just now, and that no client is connected to it."""
        sandbox.base, pids = None, sandbox.cgroup.pids()
        small = self.snapshots.pages(snapshot) <= _MOST_COMPARED
        if not small or not self.snapshots.is_plain(snapshot) or len(pids) != _OURS:
            return
        frame = Frame(sorted(pids, key=lambda pid: pid != sandbox.init))
        with contextlib.suppress(OSError, InfrastructureError), self.snapshots.processes(snapshot) as images:
            if frame.is_valid and changes.holds(images, frame):
                sandbox.base = Base(snapshot, frame)

    def _take_changes(self, sandbox: LocalSandbox) -> SnapshotInfo | None:
        """Takes a snapshot of the changes since an earlier one; returns None if there are more than can be written."""
        sandbox.guest()  # raises SandboxDied
        base = sandbox.base
        if base is None or {*sandbox.cgroup.pids()} != {*base.frame.pids}:
            return None
        sandbox.end_connections()
        sandbox.disconnect()
        try:
            info = self._write_changes(sandbox, base)
        except (_MoreHasChanged, SnapshotUnusable):
            sandbox.base = None
            return None
        sandbox.dumped = info.id
        return info

    def _write_changes(self, sandbox: LocalSandbox, base: Base) -> SnapshotInfo:
        """Writes the pages that have changed since an earlier snapshot, and copies the files while the processes stand.

        Raises _MoreHasChanged, or SnapshotUnusable for the earlier one.
        """
        with self.snapshots.unfinished(sandbox.origin, sandbox.changes_settled) as (unfinished, finish):
            (unfinished / "criu").mkdir()
            (unfinished / "criu").chmod(0o755)
            self.snapshots.check(base.snapshot)  # the new one has images of it, and is taken for sound
            there = self.snapshots.image_checksums(base.snapshot)
            lent: dict[str, str] = {}
            noted: list[Noted] = []

            def take(processes: list[Memory]) -> None:
                if not changes.is_possible(processes) or objects(sandbox.init, *_OBJECTS):
                    raise _MoreHasChanged
                noted.append(self._note_files(sandbox))
                with paths.directory(unfinished / "criu") as images, self.snapshots.processes(base.snapshot) as earlier:
                    lent.update(_written(earlier, there, images, processes))
                with allowance.uncounted():
                    self.storage.copy(sandbox.layer, unfinished / "files", read_only=True)

            begin = time.perf_counter()
            if base.frame.while_standing(take):
                raise _MoreHasChanged
            frozen = time.perf_counter() - begin
            observe.wait_for_rest(base.frame.pids)
            known = self.snapshots.lent(base.snapshot, {f"criu/{name}": f"criu/{at}" for name, at in lent.items()})
            new = (name for name in os.listdir(unfinished / "criu") if name != pages.DIRECTORY and name not in lent)
            captures = Captures(processes=True, shell=True)
            return finish([f"criu/{name}" for name in new], captures, frozen, (), noted[0], known, plain=True)

    @staticmethod
    def _note_files(sandbox: LocalSandbox) -> Noted:
        """Notes the properties of files, as `_note` does, of processes that have changed in memory only."""
        clock = sandbox.clock.stop() if sandbox.clock else None
        pids = sandbox.cgroup.pids()
        fidelity.refuse_changed_files(pids, sandbox.init, sandbox.layer / "upper")
        closed = sandbox.time_waits.note(pids)
        directories = Directories.note(Frozen(sandbox.init, pids, -1, sandbox.time_waits))
        if closed or directories is None:
            raise _MoreHasChanged
        return Noted((directories,), clock)

    def _take_processes(self, sandbox: LocalSandbox, criu: Criu) -> SnapshotInfo:
        """Dumps the processes, and copies the files while the processes are frozen."""
        sandbox.guest()  # raises SandboxDied
        with self.snapshots.unfinished(sandbox.origin, sandbox.changes_settled) as (unfinished, finish):
            (unfinished / "criu").mkdir()
            (unfinished / "criu").chmod(0o755)
            processes = tuple(sandbox.other_processes())
            plain = not processes and sandbox.guest().info().idle
            noted: list[Noted] = []
            with closing(os.open(unfinished / "criu", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as images:
                lends = pages.ADDITION in criu.additions
                lent = self.snapshots.lend(sandbox.dumped, unfinished / "criu") if lends else NOTHING_LENT
                self._prepare(sandbox, criu)
                if plain:  # the shell goes on for a moment after it has told so, PID 1 after its client has gone
                    observe.wait_for_rest(sandbox.cgroup.pids())
                resting = [pid for pid in sandbox.cgroup.pids() if not observe.is_running(pid)]
                begin = time.perf_counter()

                def copy() -> None:
                    noted.append(self._note(sandbox, criu, images))
                    with allowance.uncounted():
                        self.storage.copy(sandbox.layer, unfinished / "files", read_only=True)

                with self._holding(sandbox) as holder:
                    self._dump(sandbox, criu, images, copy, holder)
                frozen = time.perf_counter() - begin
                observe.wait_for_rest(resting)
            for file in pages.too_large_to_compress(unfinished / "criu"):
                self.storage.compress(file, wanted=False)
            names = [f"criu/{name}" for name in os.listdir(unfinished / "criu") if name != pages.DIRECTORY]
            captures = Captures(processes=True, shell=True)
            info = finish(names, captures, frozen, processes, noted[0], lent, plain=plain)
            sandbox.dumped = info.id
        self.begin_at(sandbox, info.id)
        return info

    def _holding(self, sandbox: LocalSandbox) -> contextlib.AbstractContextManager[Held | None]:
        """Yields the process with the pages that a sandbox may still share, and that are lent to its next dump."""
        if self.holders and self.snapshots.lent_by_both(sandbox.origin, sandbox.dumped):
            return self.holders.holding(sandbox.origin)
        return contextlib.nullcontext()

    @staticmethod
    def _prepare(sandbox: LocalSandbox, criu: Criu) -> None:
        """Refuses, if possible while processes run, and ends the connections that no snapshot can hold."""
        refuse_excess(sandbox.cgroup.pids(), sandbox.init, sandbox.limits)
        fidelity.refuse(fidelity.find_loss_of_running(sandbox.cgroup.pids()))
        if _WATCHES in criu.additions:
            watches.look_for(sandbox.init, sandbox.cgroup.pids(), sandbox.places.find)
        if sandbox.is_connected():
            _refuse_loss(sandbox, criu)  # so that connections are not ended for a snapshot that cannot be taken
        sandbox.end_connections()
        sandbox.disconnect()

    @staticmethod
    def _dump(sandbox: LocalSandbox, criu: Criu, images: int, copy: Callable[[], None], holder: Held | None) -> None:
        """Dumps the processes into the directory `images`; `copy` is called while they are frozen."""

        def cut_nothing_short() -> None:
            if waits := interrupted_calls.find(sandbox.cgroup.pids()):
                raise AttemptFailed(waits)
            timers.prepare_for_dump(sandbox.cgroup.pids())

        with sandbox.cgroup.beside(sandbox.limits) as group:
            enter = [str(native.LAUNCH), "dump", str(sandbox.init), *criu.directories]
            enter += [*native.DEVICE_OPTIONS, "--ids", str(UID_BASE), str(UID_COUNT)]
            criu.dump(
                sandbox.init,
                images,
                [f"mnt[/dev/{name}]:{name}" for name in native.DEVICES],
                [*enter, *(item for path in group.paths for item in ("--cgroup", path)), "--"],
                cut_nothing_short,
                copy,
                without_watches=_WATCHES in criu.additions,
                holder=holder,
            )

    @staticmethod
    def _note(sandbox: LocalSandbox, criu: Criu, images: int) -> Noted:
        """Notes the properties of frozen processes that CRIU does not restore; refuses those that nobody restores."""
        clock = sandbox.clock.stop() if sandbox.clock else None
        options = _refuse_loss(sandbox, criu)
        find = sandbox.places.find if _WATCHES in criu.additions else None
        pids = sandbox.cgroup.pids()
        return Noted.of(Frozen(sandbox.init, pids, images, sandbox.time_waits, options, find), clock)

    def _take_shell(self, sandbox: LocalSandbox) -> SnapshotInfo:
        """Copies the files and the idle shell.

        Nothing else lives in the sandbox, before or after, so the files are consistent without freezing it.
        """
        with self.snapshots.unfinished(sandbox.origin, sandbox.changes_settled) as (unfinished, finish):
            image = capture(sandbox.guest(), others=sandbox.other_processes(), hold=sandbox.shell_hold)
            sandbox.end_connections()
            with allowance.uncounted():
                self.storage.copy(sandbox.layer, unfinished / "files", read_only=True)
            info = sandbox.guest().info()
            if sandbox.other_processes() or (info.inner, info.idle) != (image.inner, True):
                raise AttemptFailed("the sandbox changes while its files are copied")
            if _holds(unfinished / "files" / "upper", _STARTUP_FILE):
                raise NotCheckpointable(f"/{'/'.join(_STARTUP_FILE)} was changed, and would act when a shell is made")
            (unfinished / SHELL).write_bytes(image.to_bytes())
            closed = tuple(sandbox.time_waits.note(sandbox.cgroup.pids()))
            repairs = (Sockets(closed),) if closed else ()
            noted = Noted(repairs, sandbox.clock.stop() if sandbox.clock else None)
            return finish([SHELL], Captures(shell=True), 0.0, (), noted)


def _written(earlier: int, there: Mapping[str, Sequence[int]], images: int, processes: list[Memory]) -> dict[str, str]:
    """See `changes.write`; raises _MoreHasChanged for its errors, such as an earlier snapshot that was deleted."""
    try:
        return changes.write(earlier, there, images, processes)
    except (OSError, changes.UnknownFormat):
        raise _MoreHasChanged from None


def _refuse_loss(sandbox: LocalSandbox, criu: Criu) -> list[Options]:
    """See `fidelity.refuse_loss`."""
    added = {name: name in criu.additions for name in ("terminals", "queues", "roots", "locks", "timers")}
    keeps = fidelity.Keeps(**added, settings=True, options=True)
    return fidelity.refuse_loss(sandbox.cgroup.pids(), sandbox.init, sandbox.layer / "upper", keeps)


def _holds(upper: Path, path: tuple[str, ...]) -> bool:
    """Whether a writable layer has an entry for a path or one of its parents; follows no links."""
    for name in path:
        upper /= name
        if not upper.is_dir() or upper.is_symlink():
            return os.path.lexists(upper)
    return True
