"""A place where container engines run for tests and benchmarks, of which nothing stays, however they or we end.

All processes in it, shims and containers included, live below one control group, by which they are found and killed.
All mounts are made in a mount namespace that ends with those processes. All else is in one directory, or in places of
the system that are covered in that namespace. A lock in the directory tells whether the owner lives; who makes the next
room removes what dead owners left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tvsnap.host.owners import Owner, is_alive
from tvsnap.model.errors import InfrastructureError, MachineLacks

PREFIX = "tvsnap-engine-"
TIMEOUT = 30.0  # seconds for processes to end
YOUNG = 10.0
"""Seconds in which a directory may have no owner yet."""
SPACE = 4 * 1024**3
"""Bytes that must be free where a room keeps its data."""
LONGEST_PARENT = 44
"""Characters; containerd makes sockets below, and their names may have 107."""
_COVER = 'for place; do mkdir -p "$place" && mount -t tmpfs tmpfs "$place" || exit; done; echo covered; read -r _'
_ENTER = 'echo $$ >"$1" && shift && exec "$@"'
_POLL = 0.02


class Room:
    """One such place.

    Attributes:
        directory: for all that is kept; its name is the room's.
        takes_overlays: whether overlays can be made in the directory.
        group: a control group for containers, below the root of each hierarchy.
    """

    def __init__(self, covered: Sequence[str] = ()) -> None:
        """Makes a room, and removes those of dead owners.

        Args:
            covered: directories of the system that are empty and private in the room; made if missing.

        Raises:
            MachineLacks: no space, no control groups or no mount namespaces.
        """
        sweep()
        parent, self.takes_overlays = _place()
        self.directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self.group = f"/{self.directory.name}/containers"
        self._owner = Owner(self.directory)
        self._mounts = -1
        try:
            own = _process_hierarchy() / self.directory.name / "engine"
            own.mkdir(parents=True)
            self._processes = own / "cgroup.procs"
            self._mounts = _private_mounts(covered)
        except BaseException:
            self.close()
            raise

    def enter(self, command: Sequence[str]) -> list[str]:
        """Returns the command that runs another in the room, as the same process."""
        into_group = ["sh", "-c", _ENTER, "sh", str(self._processes)]
        return [*into_group, "nsenter", f"--mount=/proc/{os.getpid()}/fd/{self._mounts}", *command]

    def close(self) -> None:
        """Ends all that runs in it and removes all that it kept; safe to repeat."""
        if self._mounts >= 0:
            os.close(self._mounts)
            self._mounts = -1
        _remove(self.directory)
        self._owner.close()


def sweep() -> None:
    """Removes the rooms of dead owners: processes, control groups and directories."""
    for parent in _parents():
        for directory in parent.glob(f"{PREFIX}*"):
            with contextlib.suppress(FileNotFoundError):  # another process sweeps too
                young = time.time() - directory.stat().st_mtime < YOUNG
                owners = [lock.stem for lock in (directory / "run" / "owners").glob("*.lock")]
                if not young and not any(is_alive(directory, owner) for owner in owners):
                    _remove(directory)


def _remove(directory: Path) -> None:
    """Ends all processes of the room in `directory`, then removes its control groups and files.

    Raises:
        InfrastructureError: its processes do not end.
    """
    groups = [mounted / directory.name for mounted in _hierarchies()]
    deadline = time.monotonic() + TIMEOUT
    while pids := _processes(groups):
        if time.monotonic() > deadline:
            raise InfrastructureError(f"processes of the container engine in {directory} do not end: {sorted(pids)}")
        for freezer in (below / "freezer.state" for group in groups for below in _below(group)):
            with contextlib.suppress(OSError):  # a frozen process would not die, in v1
                freezer.write_text("THAWED")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL)
    for group in groups:
        _remove_group(group, deadline)
    shutil.rmtree(directory, ignore_errors=True)


def _below(group: Path) -> list[Path]:
    """Returns a control group and all those below it, the deepest first; some may go at any moment."""
    return [Path(path) for path, _, _ in os.walk(group, topdown=False)]


def _processes(groups: list[Path]) -> set[int]:
    """Returns the ids of all processes below control groups."""
    found: set[int] = set()
    for path in (below / "cgroup.procs" for group in groups for below in _below(group)):
        with contextlib.suppress(OSError):  # the group has just gone
            found.update(map(int, path.read_text().split()))
    return found - {0}  # stands for those of other pid namespaces


def _remove_group(group: Path, deadline: float) -> None:
    """Removes a control group and those below; what has just ended in them may keep them busy for a moment."""
    while group.is_dir():
        for path in _below(group):
            with contextlib.suppress(OSError):
                path.rmdir()
        if time.monotonic() > deadline:
            raise InfrastructureError(f"the control group {group} cannot be removed")


def _hierarchies() -> list[Path]:
    """Returns where hierarchies of control groups are mounted, of both versions, version 2 first."""
    found: dict[str, list[Path]] = {"cgroup2": [], "cgroup": []}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _, rest = line.partition(" - ")
        mounted = Path(place.split()[4])
        kind = rest.split()[0]
        if kind in found and mounted.is_relative_to("/sys/fs/cgroup") and os.access(mounted, os.W_OK):
            found[kind].append(mounted)
    return found["cgroup2"] + found["cgroup"]


def _process_hierarchy() -> Path:
    """Returns the hierarchy in which a room's processes are kept together: any but one that asks for more first."""
    for mounted in _hierarchies():
        if not (mounted / "cpuset.cpus").exists() or (mounted / "cgroup.controllers").exists():
            return mounted
    raise MachineLacks("no control groups can be written below /sys/fs/cgroup; a container engine needs them")


def _private_mounts(covered: Sequence[str]) -> int:
    """Returns a descriptor of a new mount namespace: the system's mounts come in, none goes out."""
    command = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", _COVER, "sh", *covered]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        if holder.stdout.readline() != b"covered\n":
            raise MachineLacks("no mounts can be made in a namespace, which container engines need; run as root")
        return os.open(f"/proc/{holder.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


def _parents() -> list[Path]:
    """Returns the directories in which a room may have its own, the best first."""
    # /tmp may be in memory, and layers are kept on disks.
    names = [os.environ.get("TMPDIR"), "/var/tmp", tempfile.gettempdir(), Path.home() / ".cache", "/dev/shm"]
    return list(dict.fromkeys(Path(name) for name in names if name and os.access(name, os.W_OK)))


def _place() -> tuple[Path, bool]:
    """Returns where to keep data, and whether overlays can be made there; a place where they can is preferred.

    In a container / itself is an overlay, which takes no other, but a volume or memory may do.
    """
    fitting = [path for path in _parents() if len(str(path)) <= LONGEST_PARENT and shutil.disk_usage(path).free > SPACE]
    if not fitting:
        raise MachineLacks(
            f"no space for a container engine: {SPACE // 1024**3} GB must be free in one of "
            f"{', '.join(map(str, _parents()))}; or name a directory in TMPDIR"
        )
    return next(((path, True) for path in fitting if _takes_overlays(path)), (fitting[0], False))


def _takes_overlays(parent: Path) -> bool:
    with tempfile.TemporaryDirectory(prefix="tvsnap-overlay-", dir=parent) as scratch:
        for name in ("lower", "upper", "work", "merged"):
            (Path(scratch) / name).mkdir()
        options = f"lowerdir={scratch}/lower,upperdir={scratch}/upper,workdir={scratch}/work"
        mount = ["mount", "-t", "overlay", "overlay", "-o", options, f"{scratch}/merged"]
        tried = subprocess.run(["unshare", "--mount", *mount], capture_output=True, check=False)
        return tried.returncode == 0
