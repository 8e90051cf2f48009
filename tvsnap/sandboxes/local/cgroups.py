"""Control groups of sandboxes: limits and the list of processes. Version 2, or version 1 (also hybrid)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tvsnap.host.libc import closing
from tvsnap.model.errors import InfrastructureError, MachineLacks
from tvsnap.model.limits import GroupedLimits, Limits

_V1_QUOTA = "cpu.cfs_quota_us"
_V1_SOCKETS = "memory.kmem.tcp.limit_in_bytes"
_V1_LIMITS = {
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", _V1_SOCKETS),
    "pids": ("pids.max",),
    "cpu": (_V1_QUOTA,),
    "freezer": (),
    "cpuacct": (),
}
"""The controllers of version 1 that are used, and the files of a group that hold their limits."""
_LIMITS = ("memory.max", "memory.swap.max", "cpu.max", "pids.max")
"""The same files of version 2."""
_PERIOD_US = 100_000
_NEARLY = 1 << 20
"""Bytes below its memory limit at which a group counts as being at it: the kernel takes pages in batches."""
_WEIGHTS = {"cpu.weight": 10_000, "cpu.shares": 1 << 18}
"""The files that hold the weight of a group beside others, in either version, with the largest weight."""
_GROUP = "group."
"""Beginning of the names of groups of several sandboxes; no owner has such a name."""
_AT_ONCE = 64
"""Processes that are killed after each reading of the list."""
_PART = 1 << 16
_FREEZE_TIMEOUT = 10.0
_SOCKETS = 64 << 20
"""Bytes in socket buffers, at most, if these do not count as the group's memory (version 1)."""
_BESIDE, _FEW = 1 << 30, 64
"""Additional bytes of memory, and processes, for a program that works beside a sandbox: for CRIU itself, and for its
images that still have to be written to the disk."""


@dataclass(frozen=True, slots=True)
class CgroupTree:
    """The groups of one data directory: `tvsnap/TAG/OWNER/SANDBOX` in each hierarchy.

    Sandboxes that have a part of the processors together (`GroupedLimits`) are in
    `tvsnap/TAG/group.NAME/OWNER/SANDBOX`, so that those of several processes share it.

    Attributes:
        roots: the group `tvsnap/TAG` in each hierarchy in use.
        limits: names of the files that hold limits, in each hierarchy.
        freezer: the root in the hierarchy with the freezer; None if there is none.
        unified: whether the hierarchy is that of version 2.
    """

    roots: tuple[Path, ...]
    limits: tuple[tuple[str, ...], ...]
    freezer: Path | None
    unified: bool

    @classmethod
    def find(cls, home: Path) -> CgroupTree:
        """Returns the tree for a data directory; its groups may not exist yet.

        Raises MachineLacks if no hierarchy has memory and process limits, or if privileges are missing.
        """
        tag = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:12]
        mounts: dict[str, Path] = {}
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, where, kind, options, *_ = line.split()
            if kind == "cgroup2":
                mounts.setdefault("unified", Path(where))
            elif kind == "cgroup":
                for controller in options.split(","):
                    if controller in _V1_LIMITS:
                        mounts.setdefault(controller, Path(where))  # CRIU mounts them elsewhere temporarily
        unified = mounts.get("unified")
        if unified and {"memory", "pids"} <= set((unified / "cgroup.controllers").read_text().split()):
            root = unified / "tvsnap" / tag
            return cls((root,), (_LIMITS,), root, True)
        if {"memory", "pids"} <= mounts.keys():
            roots = {controller: mount / "tvsnap" / tag for controller, mount in mounts.items()}
            limits: dict[Path, tuple[str, ...]] = {}
            for controller, names in _V1_LIMITS.items():
                if controller in roots:
                    limits[roots[controller]] = (*limits.get(roots[controller], ()), *names)
            return cls(tuple(limits), tuple(limits.values()), roots.get("freezer"), False)
        raise MachineLacks("no cgroup hierarchy offers the controllers memory and pids (tvsnap doctor)")

    def create(self, owner: str, sandbox: str, limits: Limits) -> Cgroup:
        """Makes the groups of a sandbox and sets its limits."""
        above = f"{_GROUP}{limits.group}/{owner}" if isinstance(limits, GroupedLimits) else owner
        group = self._group(above, sandbox)
        try:
            for path, names in zip(group.paths, group.limits, strict=True):
                if self.unified:
                    self._delegate(Path(path))
                if isinstance(limits, GroupedLimits):
                    _weigh(path.removesuffix(f"/{owner}/{sandbox}"), limits.part)
                try:
                    os.mkdir(path)
                except FileNotFoundError:  # the owner's first group
                    os.makedirs(path)
                _limit(path, names, limits)
        except PermissionError as error:
            raise MachineLacks(f"no rights to make control groups: {error.filename} (run as root)") from None
        return group

    def _group(self, above: str, sandbox: str) -> Cgroup:
        file = "cgroup.freeze" if self.unified else "freezer.state"
        freezer = f"{self.freezer}/{above}/{sandbox}/{file}" if self.freezer else ""
        return Cgroup(tuple(f"{root}/{above}/{sandbox}" for root in self.roots), self.limits, freezer)

    def owners(self) -> Iterator[str]:
        """Yields the owners that have groups here."""
        names: set[str] = set()
        for root in self.roots:  # a process that died meanwhile may have left groups in only one hierarchy
            for place in _places(root):
                names.update(name for name in _below(place) if not name.startswith(_GROUP))
        yield from names

    def sandboxes(self, owner: str) -> Iterator[Cgroup]:
        """Yields the groups of an owner's sandboxes."""
        names: dict[tuple[str, str], None] = {}
        for root in self.roots:
            for place in _places(root):
                above = str((place / owner).relative_to(root))
                names.update(((above, name), None) for name in _below(place / owner))
        for above, name in names:
            yield self._group(above, name)

    def remove_owner(self, owner: str) -> None:
        """Removes an owner's groups once its sandboxes are gone, and those above if nobody else uses them."""
        for root in self.roots:
            places = [path for place in reversed(_places(root)) for path in (place / owner, place)]
            for path in (*places, root.parent):
                with contextlib.suppress(OSError):  # other owners have groups below
                    path.rmdir()

    def _delegate(self, path: Path) -> None:
        """Enables the controllers in all ancestors, which version 2 requires."""
        hierarchy = self.roots[0].parents[1]
        ancestors = [ancestor for ancestor in reversed(path.parents) if ancestor.is_relative_to(hierarchy)]
        for ancestor in ancestors:
            ancestor.mkdir(exist_ok=True)
        for ancestor in ancestors:
            have = set((ancestor / "cgroup.controllers").read_text().split())
            wanted = [f"+{name}" for name in ("memory", "pids", "cpu") if name in have]
            with contextlib.suppress(OSError):
                (ancestor / "cgroup.subtree_control").write_text(" ".join(wanted))


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The groups of one sandbox.

    Attributes:
        paths: the group in each hierarchy.
        limits: names of the files that hold limits, in each hierarchy.
        freezer: the file that freezes the processes; empty if there is none.
    """

    paths: tuple[str, ...]
    limits: tuple[tuple[str, ...], ...]
    freezer: str = ""

    @property
    def name(self) -> str:
        return os.path.basename(self.paths[0])

    def pids(self) -> list[int]:
        """Returns the group's processes, as the host sees them; none if the group is gone."""
        with contextlib.suppress(OSError):
            return sorted(_listed(self.paths[0]))
        return []

    def memory_kills(self) -> tuple[int, bool]:
        """Returns how many of its processes the kernel has killed for want of memory, and whether its limit was met."""
        counts: dict[str, int] = {}
        for path in self.paths:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    counts.update((key, int(value)) for key, value in map(str.split, _lines(f"{path}/{name}")))
            with contextlib.suppress(OSError):  # version 1 does not count how often the limit was met
                most, limit = (int(_lines(f"{path}/memory.{name}_in_bytes")[0]) for name in ("max_usage", "limit"))
                counts["oom"] = int(most > limit - _NEARLY)
        return counts.get("oom_kill", 0), counts.get("oom", 0) > 0

    @contextlib.contextmanager
    def beside(self, limits: Limits) -> Iterator[Cgroup]:
        """Makes a temporary group beside this one, for a program that works on this one's processes.

        It has the same limits plus the needs of such a program. Processes that remain when the program is killed are
        killed at the end of the block, or with the sandboxes of a dead owner.
        """
        used = [
            (f"{path}.beside", names)
            for path, names in zip(self.paths, self.limits, strict=True)
            if path == self.paths[0] or (limits.cpus and _V1_QUOTA in names)
        ]
        group = Cgroup(tuple(path for path, _ in used), tuple(names for _, names in used))
        try:
            for path, names in used:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(path)
                _limit(path, names, _with_room(limits))
            yield group
        finally:
            group.destroy()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freezes all processes in the group; raises InfrastructureError if they do not stop."""
        deadline = time.monotonic() + _FREEZE_TIMEOUT
        try:
            self.freeze()
            while not self._is_frozen():
                if time.monotonic() > deadline:
                    raise InfrastructureError(f"the processes of sandbox {self.name} cannot be frozen (tvsnap doctor)")
                time.sleep(0.0005)
            yield
        finally:
            self.thaw()

    def freeze(self) -> None:
        """Begins to freeze all processes in the group."""
        self._set_frozen(True)

    def thaw(self) -> None:
        """Thaws the group; has no effect if it is not frozen, or gone."""
        self._set_frozen(False)

    def _set_frozen(self, frozen: bool) -> None:
        words = ("THAWED", "FROZEN") if self.freezer.endswith(".state") else ("0", "1")
        with contextlib.suppress(OSError):
            _write(self.freezer, words[frozen])

    def _is_frozen(self) -> bool:
        with contextlib.suppress(OSError):
            if self.freezer.endswith(".state"):
                return Path(self.freezer).read_text().strip() == "FROZEN"
            return "frozen 1" in Path(self.freezer).with_name("cgroup.events").read_text().splitlines()
        return False

    def kill(self) -> None:
        """Kills all processes in the group; frozen ones die when they are thawed."""
        with contextlib.suppress(OSError):
            _kill_all(self.paths[0])

    def destroy(self) -> bool:
        """Kills all processes and removes the group; returns whether it is gone. Waits 5 s at most."""
        self.thaw()  # frozen processes do not die
        deadline = time.monotonic() + 5
        groups = self.paths
        while groups := tuple(path for path in groups if not (_remove(path) or _remove(path, kill=True))):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _places(root: Path) -> list[Path]:
    """Returns the groups below which those of owners are."""
    return [root, *(root / name for name in _below(root) if name.startswith(_GROUP))]


def _below(group: Path) -> Iterable[str]:
    with contextlib.suppress(FileNotFoundError):
        return [entry.name for entry in os.scandir(group) if entry.is_dir()]
    return ()


def _weigh(group: str, part: float) -> None:
    """Makes a group of several sandboxes if there is none, and gives it its weight if its hierarchy has weights."""
    os.makedirs(group, exist_ok=True)
    for name, largest in _WEIGHTS.items():
        with contextlib.suppress(FileNotFoundError):
            _write(f"{group}/{name}", str(max(2, round(part * largest))))


def _with_room(limits: Limits) -> Limits:
    """Returns limits for a program that needs some memory itself, and enough CPU time to finish soon."""
    return replace(
        limits,
        memory=limits.memory + _BESIDE,
        processes=limits.processes + _FEW,
        cpus=limits.cpus and max(limits.cpus, 1),
    )


def _limit(group: str, names: tuple[str, ...], limits: Limits) -> None:
    """Sets the limits of a group, in those files among `names` that this kernel has."""
    quota = int(limits.cpus * _PERIOD_US)
    values = {
        "memory.max": limits.memory,
        "memory.swap.max": 0,
        "memory.limit_in_bytes": limits.memory,
        "memory.memsw.limit_in_bytes": limits.memory,
        _V1_SOCKETS: min(limits.memory // 8, _SOCKETS),
        "cpu.max": f"{quota} {_PERIOD_US}" if quota else "",
        _V1_QUOTA: quota or "",
        "pids.max": limits.processes,
    }
    for name in names:
        if values[name] != "":
            with contextlib.suppress(FileNotFoundError):  # this kernel has no such limit
                _write(f"{group}/{name}", str(values[name]))


def _write(path: str, text: str) -> None:
    with closing(os.open(path, os.O_WRONLY | os.O_CLOEXEC)) as file:
        os.write(file, text.encode())


def _remove(group: str, *, kill: bool = False) -> bool:
    """Removes a group, after killing its processes if asked to; returns whether it is gone."""
    try:
        if kill:
            _kill_all(group)
        os.rmdir(group)
    except OSError:
        return not os.path.exists(group)
    return True


def _kill_all(group: str) -> None:
    """Kills the processes of a group, but none that reuses the id of an ended one; raises OSError if it is gone."""
    with contextlib.suppress(FileNotFoundError):  # this file exists only in version 2, since Linux 5.14
        _write(f"{group}/cgroup.kill", "1")
        return
    pids = sorted(_listed(group))
    for first in range(0, len(pids), _AT_ONCE):
        with contextlib.ExitStack() as stack:
            handles = {}
            for pid in pids[first : first + _AT_ONCE]:
                with contextlib.suppress(ProcessLookupError):
                    handles[pid] = os.pidfd_open(pid)
                    stack.callback(os.close, handles[pid])
            # A process that is still listed is the one of the descriptor; otherwise the signal reaches nobody.
            for pid in handles.keys() & _listed(group):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handles[pid], signal.SIGKILL)


def _listed(group: str) -> set[int]:
    text = b""
    with closing(os.open(f"{group}/cgroup.procs", os.O_RDONLY | os.O_CLOEXEC)) as file:  # at each observation
        while part := os.read(file, _PART):
            text += part
    return set(map(int, text.split()))
