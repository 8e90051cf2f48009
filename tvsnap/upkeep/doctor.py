"""What works on this machine, what each lack costs, and how to mend it.

Every check tries the thing itself where that is possible without a trace (a mount in a namespace that ends with the
check), instead of trusting names and versions.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tvsnap.host import native
from tvsnap.model.errors import TvsnapError
from tvsnap.model.images import UID_BASE, UID_COUNT
from tvsnap.sandboxes.criu.binary import OLDEST_CRIU, additions, criu_complaint, criu_version, find_criu
from tvsnap.sandboxes.local.storage.layers import POOL_FILE
from tvsnap.sandboxes.local.storage.pool_file import PoolFile, require_room
from tvsnap.sandboxes.local.storage.quota import Quotas

GIB = 1024**3
ENOUGH_DISK = 5 * GIB
ENOUGH_DESCRIPTORS = 4096
"""Bytes: an image of a Debian system takes 0.5 GiB, and the files of builds and databases add up."""

OLDEST_KERNEL = (5, 11)
OLDEST_QUOTAS = (6, 7)
"""Linux 5.11 is the first that mounts overlays inside user namespaces."""

NATIVE_PROGRAMS = (native.INIT, native.FIXED, native.CRIU_PLUGIN, native.LAUNCH)

NAMESPACES = ("user", "pid", "mount", "net", "ipc", "uts", "cgroup")
CONTROLLERS = ("memory", "pids", "cpu", "freezer")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that tvsnap needs or profits from.

    Attributes:
        name: what was looked for.
        ok: it is there and works.
        required: without it no sandbox can run; otherwise tvsnap does without, at the price of `cost`.
        detail: what was found.
        cost: what its lack costs the user.
        remedy: a command or a sentence that mends it.
    """

    name: str
    ok: bool
    required: bool
    detail: str
    cost: str
    remedy: str


def run_checks(home: Path) -> list[Check]:
    """Looks at this machine.

    Args:
        home: the data directory; it need not exist, and is not made.

    Returns:
        Every check, those that are required first.
    """
    from tvsnap.upkeep.doctor_docker import check_docker  # here, because it knows what a Check is from this module

    checks = [
        check_platform(),
        check_root(),
        check_home(home),
        check_native_programs(),
        check_namespaces(),
        check_overlayfs(),
        check_cgroups(),
        check_criu(),
        check_btrfs(home),
        check_loop_devices(home),
        *check_pool(home),
        check_disk_limits(home),
        check_users(home),
        check_memory_files(),
        check_descriptors(),
        check_bootstrap(),
        check_disk(home),
        *check_docker(),
    ]
    return sorted(checks, key=lambda check: not check.required)


def check_platform() -> Check:
    """Linux of a kernel that can do what sandboxes are made of."""
    release = platform.release()
    return Check(
        name="platform",
        ok=platform.system() == "Linux" and _kernel() >= OLDEST_KERNEL,
        required=True,
        detail=f"{platform.system()} {release}, {platform.machine()}, Python {platform.python_version()}",
        cost="no sandbox can run",
        remedy=f"use a machine with Linux {OLDEST_KERNEL[0]}.{OLDEST_KERNEL[1]} or newer",
    )


def check_root() -> Check:
    """Root's rights, which mounts and checkpoints need."""
    user = os.geteuid()
    return Check(
        name="root rights",
        ok=user == 0,
        required=True,
        detail="root" if user == 0 else f"user id {user}",
        cost="no sandbox can run",
        remedy="run tvsnap as root (sudo -E tvsnap ...)",
    )


def check_home(home: Path) -> Check:
    """A data directory that can be written, or can be made."""
    place = _existing(home)
    if home.exists() and not home.is_dir():
        ok, detail = False, f"{home} is no directory"
    elif not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        ok, detail = False, f"no rights to write {place}"
    else:
        ok, detail = True, str(home) if home.is_dir() else f"{home} (not there yet)"
    return Check(
        name="data directory",
        ok=ok,
        required=True,
        detail=detail,
        cost="nothing can be kept",
        remedy="choose another: export TVSNAP_HOME=DIRECTORY",
    )


def check_native_programs() -> Check:
    """The C programs that run inside and around a sandbox."""
    missing = [program.name for program in NATIVE_PROGRAMS if not os.access(program, os.X_OK)]
    return Check(
        name="native programs",
        ok=not missing,
        required=True,
        detail=f"not compiled: {', '.join(missing)}" if missing else "compiled",
        cost="no sandbox can run",
        remedy="make native",
    )


def check_namespaces() -> Check:
    """Namespaces of every kind, made for the length of this check."""
    complaint = _try(["unshare", "--map-root-user", *(f"--{name}" for name in NAMESPACES), "--fork", "true"])
    return Check(
        name="namespaces",
        ok=complaint is None,
        required=True,
        detail=complaint or ", ".join(NAMESPACES),
        cost="no sandbox can run",
        remedy="sysctl -w user.max_user_namespaces=65536 (in a container: run it with --privileged)",
    )


def check_overlayfs() -> Check:
    """An overlay, mounted in a mount namespace that ends with this check."""
    with tempfile.TemporaryDirectory(prefix="tvsnap-doctor-") as directory:
        mount = (
            'mount -t tmpfs none "$0" && cd "$0" && mkdir lower upper work merged && '
            "mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay merged"
        )
        complaint = _try(["unshare", "--mount", "sh", "-c", mount, directory])
    return Check(
        name="overlayfs",
        ok=complaint is None,
        required=True,
        detail=complaint or "mounts",
        cost="no sandbox can run",
        remedy="modprobe overlay (in a container: run it with --privileged)",
    )


def check_cgroups() -> Check:
    """Control groups of either version, with the controllers that limit a sandbox."""
    found = _controllers()
    missing = [name for name in CONTROLLERS if name not in found]
    detail = ", ".join(f"{name} (v{found[name]})" for name in CONTROLLERS if name in found)
    return Check(
        name="cgroups",
        ok=not missing,
        required=True,
        detail=(detail or "none") + (f"; missing: {', '.join(missing)}" if missing else ""),
        cost="sandboxes cannot be limited or stopped for a checkpoint",
        remedy="mount -t cgroup2 none /sys/fs/cgroup (in a container: run it with --privileged)",
    )


def check_criu() -> Check:
    """A CRIU that is new enough and content with this kernel."""
    oldest = ".".join(map(str, OLDEST_CRIU))
    binary = find_criu()
    ok = False
    if binary is None:
        chosen = os.environ.get("TVSNAP_CRIU")
        detail = f"not found at $TVSNAP_CRIU, {chosen}" if chosen else "not found"
    else:
        version = criu_version(binary)
        detail = f"{'.'.join(map(str, version)) or 'does not run'}, {binary}"
        if version and version < OLDEST_CRIU:
            detail += f": {oldest} or newer is needed"
        elif version:
            complaint = criu_complaint(binary)
            ok = complaint is None and "terminals" in additions(binary)
            if complaint:
                detail += f": {complaint}"
            elif not ok:
                detail += ": it does not bring back the terminal of background jobs"
    return Check(
        name="CRIU",
        ok=ok,
        required=False,
        detail=detail,
        cost="states with live processes beyond the idle shell are replayed instead of forked",
        remedy="make setup (builds CRIU with what it lacks)",
    )


def check_btrfs(home: Path) -> Check:
    """A kernel that knows btrfs, and the tool that makes one; or a data directory that is on one."""
    if os.environ.get("TVSNAP_NO_BTRFS") == "1":
        ok, detail, remedy = False, "switched off by TVSNAP_NO_BTRFS=1", "unset TVSNAP_NO_BTRFS"
    elif not _kernel_has("btrfs"):
        ok, detail, remedy = False, "this kernel has none", "modprobe btrfs, or a kernel that has it"
    elif _on_btrfs(home):
        ok, detail, remedy = True, f"{home} is on one", ""
    elif not _program("mkfs.btrfs"):
        ok, detail, remedy = False, "mkfs.btrfs is missing", "apt-get install btrfs-progs"
    else:
        ok, detail, remedy = True, "in a loop file in the data directory", ""
    return Check(
        name="btrfs",
        ok=ok,
        required=False,
        detail=detail,
        cost="file snapshots are copies: slower, and as big as the files that changed",
        remedy=remedy,
    )


def check_loop_devices(home: Path) -> Check:
    """Loop devices, for the file with a btrfs in it; not needed where the data directory is on btrfs."""
    available = os.access("/dev/loop-control", os.R_OK | os.W_OK)
    spared = _on_btrfs(home)
    if available:
        detail = "available"
    else:
        detail = "not needed: the data directory is on btrfs" if spared else "/dev/loop-control cannot be opened"
    return Check(
        name="loop devices",
        ok=available or spared,
        required=False,
        detail=detail,
        cost="no btrfs: file snapshots are copies",
        remedy="modprobe loop (in a container: run it with --privileged), or a TVSNAP_HOME on btrfs",
    )


def check_pool(home: Path) -> list[Check]:
    """The file with a btrfs in it, or room for one where there is none yet."""
    image = home / POOL_FILE
    if os.environ.get("TVSNAP_STORAGE") == "copy" or os.geteuid() != 0 or _on_btrfs(home):
        return []
    trouble, detail = "", f"{image} can be mounted"
    try:
        if image.exists():
            PoolFile(image).close()
        else:
            require_room(_existing(home))
            detail = "there is room for it"
    except (TvsnapError, OSError) as error:
        trouble = str(error)
    return [
        Check(
            name="pool of snapshots",
            ok=not trouble,
            required=True,
            detail=trouble or detail,
            cost="no sandbox can run with this data directory",
            remedy="see above; or choose another data directory: export TVSNAP_HOME=DIRECTORY",
        )
    ]


def check_disk_limits(home: Path) -> Check:
    """Simple quotas of btrfs, which limit what each sandbox of the local backend writes."""
    remedy = f"Linux {OLDEST_QUOTAS[0]}.{OLDEST_QUOTAS[1]} or newer"
    if os.environ.get("TVSNAP_STORAGE") == "copy":
        lack, remedy = "copies have no quotas", "unset TVSNAP_STORAGE"
    elif _kernel() < OLDEST_QUOTAS:
        lack = f"Linux {platform.release()} has no simple quotas of btrfs"
    elif _on_btrfs(home) and not Quotas(_existing(home)).enabled:
        lack = "the data directory is on a btrfs whose simple quotas are off"
        remedy = "btrfs quota enable --simple DIRECTORY, or a TVSNAP_HOME on another file system than btrfs"
    else:
        lack = ""
    return Check(
        name="disk limits",
        ok=not lack,
        required=False,
        detail=lack or "of each sandbox, by simple quotas of btrfs; none in Docker",
        cost="one sandbox can fill the disk that all share",
        remedy=remedy,
    )


def check_users(home: Path) -> Check:
    """Users of this machine for each sandbox, so that what the kernel counts for a user is counted for a sandbox."""
    criu = find_criu()
    remedy = "make setup (builds CRIU with what it lacks)"
    if criu is not None and "owners" not in additions(criu):
        lack = "this CRIU gives a fork the users of what it is a fork of"
    elif not os.access("/run", os.W_OK):
        lack, remedy = (
            "no rights to write /run, where is noted which are in use",
            "mount /run such that it can be written",
        )
    else:
        lack = _try([str(native.LAUNCH), "owners", str(_existing(home)), "--ids", str(UID_BASE), str(UID_COUNT)]) or ""
        remedy = "Linux 5.19 or newer, and a TVSNAP_HOME on ext4, xfs or btrfs"
    return Check(
        name="users",
        ok=not lack,
        required=False,
        detail=lack or "each sandbox has its own",
        cost="one sandbox can use up what the kernel lets a user have (buffers of pipes, descriptors in flight)",
        remedy=remedy,
    )


def check_memory_files() -> Check:
    """A tmpfs at /dev/shm, where CRIU keeps what it learnt of the kernel."""
    kind = _filesystem(Path("/dev/shm"))
    return Check(
        name="/dev/shm",
        ok=kind == "tmpfs",
        required=False,
        detail=kind or "missing",
        cost="every checkpoint and every fork takes 40-80 ms more",
        remedy="mount -t tmpfs tmpfs /dev/shm",
    )


def check_descriptors() -> Check:
    """Open files that a process may have: each sandbox takes a few, and CRIU some hundreds."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    unlimited = most == resource.RLIM_INFINITY
    return Check(
        name="open files",
        ok=unlimited or most >= ENOUGH_DESCRIPTORS,
        required=False,
        detail="no limit" if unlimited else f"at most {most} in a process",
        cost="rollouts that run side by side fail, and so do forks of live processes",
        remedy=f"ulimit -Hn {ENOUGH_DESCRIPTORS} before tvsnap is started; LimitNOFILE= for a service",
    )


def check_bootstrap() -> Check:
    """A program that makes a Debian system from nothing."""
    found = [program for program in ("mmdebstrap", "debootstrap") if _program(program)]
    return Check(
        name="Debian bootstrap",
        ok=bool(found),
        required=False,
        detail=", ".join(found) or "neither mmdebstrap nor debootstrap",
        cost="images that start from a Debian bootstrap, such as terminal, cannot be built",
        remedy="apt-get install mmdebstrap",
    )


def check_disk(home: Path) -> Check:
    """Room for images and snapshots where the data directory is, or will be."""
    free = shutil.disk_usage(_existing(home)).free
    return Check(
        name="disk",
        ok=free >= ENOUGH_DISK,
        required=False,
        detail=f"{free / GIB:.1f} GiB free",
        cost="snapshotting stops with 1 GiB (or 5 %) left; states are replayed instead",
        remedy="tvsnap gc, or TVSNAP_HOME on a bigger disk",
    )


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())


def _controllers() -> dict[str, int]:
    """Returns the controllers that can be used, each with the version of its hierarchy."""
    found: dict[str, int] = {}
    for line in _lines("/proc/self/mountinfo"):
        place, _, rest = line.partition(" - ")
        mount_point = place.split()[4]
        kind, _, options = rest.split(maxsplit=2)
        if not os.access(mount_point, os.W_OK):  # as in a container that may only look at its groups
            continue
        if kind == "cgroup":
            found.update({name: 1 for name in CONTROLLERS if name in options.split(",")})
        elif kind == "cgroup2":
            offered = " ".join(_lines(f"{mount_point}/cgroup.controllers")).split()
            found.update({name: 2 for name in CONTROLLERS if name in offered})
            # In v2 freezing is no controller: every group but the root can do it, since Linux 5.2.
            found.setdefault("freezer", 2)
    return found


def _kernel_has(filesystem: str) -> bool:
    known = {line.split()[-1] for line in _lines("/proc/filesystems") if line.split()}
    return filesystem in known or (
        bool(_program("modprobe")) and _try(["modprobe", "--dry-run", "--quiet", filesystem]) is None
    )


def _filesystem(path: Path) -> str:
    """Returns the type of the filesystem that `path` is on, as `stat -f` names it; "" if there is no such path."""
    run = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=False)
    return run.stdout.strip()


def _on_btrfs(home: Path) -> bool:
    return _filesystem(_existing(home)) == "btrfs"


def _existing(path: Path) -> Path:
    """Returns the nearest directory that exists, `path` or above."""
    path = path.absolute()
    return next(directory for directory in (path, *path.parents) if directory.is_dir())


def _program(name: str) -> str | None:
    # Administrators' programs live in sbin, which is not in everyone's PATH.
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))


def _try(command: list[str]) -> str | None:
    """Runs a command that ends soon; returns None if it succeeded, else the last line of what it said."""
    try:
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if run.returncode == 0:
        return None
    said = (run.stderr or run.stdout).strip()
    return said.splitlines()[-1] if said else f"{command[0]} ended with status {run.returncode}"


def _lines(path: str) -> Iterable[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
