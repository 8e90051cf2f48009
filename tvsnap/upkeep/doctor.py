"""Checks of this machine: features that work, the price of each missing one, and the way to get it.

Every check tries the feature itself if that is possible without a trace (a mount in a namespace that ends with the
check), instead of relying on names and versions.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tvsnap import sandboxes
from tvsnap.host import native
from tvsnap.host.checks import UNKNOWN, Check, Found, check
from tvsnap.model.errors import TvsnapError
from tvsnap.model.images import UID_BASE, UID_COUNT
from tvsnap.sandboxes.criu.binary import OLDEST_CRIU, additions, criu_complaint, criu_version, find_criu
from tvsnap.sandboxes.local.storage.layers import POOL_FILE
from tvsnap.sandboxes.local.storage.pool_file import PoolFile, require_room
from tvsnap.sandboxes.local.storage.quota import Quotas
from tvsnap.sandboxes.network.attach import network_complaint

GIB = 1024**3
ENOUGH_DISK = 5 * GIB  # bytes: an image of a Debian system takes 0.5 GiB, and the files of builds and databases add up
ENOUGH_DESCRIPTORS = 4096
OLDEST_KERNEL = (5, 11)  # Linux 5.11 is the first that mounts overlays inside user namespaces
OLDEST_QUOTAS = (6, 7)
NATIVE_PROGRAMS = (native.INIT, native.FIXED, native.CRIU_PLUGIN, native.LAUNCH)
CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "DAC_READ_SEARCH": 2,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "NET_ADMIN": 12,
    "NET_RAW": 13,
    "IPC_OWNER": 15,
    "SYS_CHROOT": 18,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
    "SYS_NICE": 23,
    "MKNOD": 27,
    "SETFCAP": 31,
    "CHECKPOINT_RESTORE": 40,
}
"""Root's capabilities that sandboxes, their checkpoints and their networks need, with the kernel's numbers."""
NAMESPACES = ("user", "pid", "mount", "net", "ipc", "uts", "cgroup")
CONTROLLERS = ("memory", "pids", "cpu", "freezer")


def run_checks(home: Path) -> list[Check]:
    """Runs all checks, and returns them with the required ones first.

    The data directory need not exist, nor is it made.
    """
    checks = [
        check_platform(),
        check_root(),
        check_capabilities(),
        check_home(home),
        check_native_programs(),
        check_namespaces(),
        check_overlayfs(),
        check_cgroups(),
        check_criu(),
        check_btrfs(home),
        check_loop_devices(home),
        *([] if _copies() or os.geteuid() != 0 or on_btrfs(home) else [check_pool(home)]),
        check_disk_limits(home),
        check_users(home),
        check_network(),
        check_memory_files(),
        check_descriptors(),
        check_bootstrap(),
        check_disk(home),
        *sandboxes.checks(home),
    ]
    return sorted(checks, key=lambda check: not check.required)


_NO_SANDBOX = "no sandbox can run"


@check(
    "platform", _NO_SANDBOX, f"use a machine with Linux {OLDEST_KERNEL[0]}.{OLDEST_KERNEL[1]} or newer", required=True
)
def check_platform() -> Found:
    """Linux with a kernel that is new enough for sandboxes."""
    detail = f"{platform.system()} {platform.release()}, {platform.machine()}, Python {platform.python_version()}"
    return Found(platform.system() == "Linux" and _kernel() >= OLDEST_KERNEL, detail)


@check(
    "root rights", _NO_SANDBOX, "run tvsnap as root (sudo -E tvsnap ...), or use a server (tvsnap --url)", required=True
)
def check_root() -> Found:
    """Root's rights, which mounts and checkpoints need."""
    user = os.geteuid()
    return Found(user == 0, "root" if user == 0 else f"user id {user}")


@check(
    "capabilities",
    "sandboxes do not start, or have no snapshots or no network",
    "give the container these capabilities (docs/guides/fleet.md: on Kubernetes)",
    root_only=True,
)
def check_capabilities() -> Found:
    """Those of root's capabilities that are needed, which a container has only in part."""
    rights = next((int(line.split()[1], 16) for line in _lines("/proc/self/status") if line.startswith("CapEff:")), 0)
    missing = [name for name, number in CAPABILITIES.items() if not rights >> number & 1]
    return Found(not missing, f"missing: {', '.join(missing)}" if missing else "all that are needed")


@check("data directory", "nothing can be kept", "choose another: export TVSNAP_HOME=DIRECTORY", required=True)
def check_home(home: Path) -> Found:
    """A data directory that can be written, or created."""
    place = _existing(home)
    if home.exists() and not home.is_dir():
        return Found(False, f"{home} is no directory")
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        return Found(False, f"no rights to write {place}")
    return Found(True, str(home) if home.is_dir() else f"{home} (not there yet)")


@check("native programs", _NO_SANDBOX, "make native; or install the wheel (make dist)", required=True)
def check_native_programs() -> Found:
    """The C programs that run inside and around a sandbox."""
    missing = [program.name for program in NATIVE_PROGRAMS if not os.access(program, os.X_OK)]
    return Found(not missing, f"not compiled: {', '.join(missing)}" if missing else "compiled")


@check(
    "namespaces",
    _NO_SANDBOX,
    "sysctl -w user.max_user_namespaces=65536 (in a container: run it with --privileged)",
    required=True,
)
def check_namespaces() -> Found:
    """Namespaces of every kind, made for the duration of this check."""
    complaint = _try(["unshare", "--map-root-user", *(f"--{name}" for name in NAMESPACES), "--fork", "true"])
    return Found(complaint is None, complaint or ", ".join(NAMESPACES))


@check(
    "overlayfs",
    _NO_SANDBOX,
    "modprobe overlay (in a container: run it with --privileged)",
    required=True,
    root_only=True,
)
def check_overlayfs() -> Found:
    """An overlay, mounted in a mount namespace that ends with this check."""
    with tempfile.TemporaryDirectory(prefix="tvsnap-doctor-") as directory:
        mount = (
            'mount -t tmpfs none "$0" && cd "$0" && mkdir lower upper work merged && '
            "mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay merged"
        )
        complaint = _try(["unshare", "--mount", "sh", "-c", mount, directory])
    return Found(complaint is None, complaint or "mounts")


@check(
    "cgroups",
    "sandboxes cannot be limited or stopped for a checkpoint",
    "mount -t cgroup2 none /sys/fs/cgroup (in a container: run it with --privileged)",
    required=True,
    root_only=True,
)
def check_cgroups() -> Found:
    """Control groups of either version, with the controllers that limit a sandbox."""
    controllers = _controllers()
    missing = [name for name in CONTROLLERS if name not in controllers]
    detail = ", ".join(f"{name} (v{controllers[name]})" for name in CONTROLLERS if name in controllers)
    return Found(not missing, (detail or "none") + (f"; missing: {', '.join(missing)}" if missing else ""))


@check(
    "CRIU",
    "states with live processes beyond the idle shell are replayed instead of forked",
    "tvsnap setup",
)
def check_criu() -> Found:
    """A CRIU that is new enough and works with this kernel."""
    binary = find_criu()
    chosen = os.environ.get("TVSNAP_CRIU")
    remedy = "unset TVSNAP_CRIU; then tvsnap setup" if chosen else None
    if binary is None:
        return Found(False, f"not found at $TVSNAP_CRIU, {chosen}" if chosen else "not found", remedy)
    version = criu_version(binary)
    detail = f"{'.'.join(map(str, version)) or 'does not run'}, {binary}"
    if not version:
        return Found(False, detail, remedy)
    if version < OLDEST_CRIU:
        return Found(False, f"{detail}: {'.'.join(map(str, OLDEST_CRIU))} or newer is needed", remedy)
    if complaint := criu_complaint(binary):
        if os.geteuid() != 0:
            return UNKNOWN
        kernel = "a kernel that has what CRIU names (in a container: run it with --privileged)"
        return Found(False, f"{detail}: {complaint}", kernel)
    if "terminals" not in additions(binary):
        return Found(False, f"{detail}: it does not bring back the terminal of background jobs", remedy)
    return Found(True, detail)


@check("btrfs", "file snapshots are copies: slower, and as big as the files that changed")
def check_btrfs(home: Path) -> Found:
    """A kernel with btrfs, and the tool that makes one; or a data directory that is on one."""
    if os.environ.get("TVSNAP_NO_BTRFS") == "1":
        return Found(False, "switched off by TVSNAP_NO_BTRFS=1", "unset TVSNAP_NO_BTRFS")
    if not _kernel_has("btrfs"):
        return Found(False, "this kernel has none", "modprobe btrfs, or a kernel that has it")
    if on_btrfs(home):
        return Found(True, f"{home} is on one")
    if not _program("mkfs.btrfs"):
        return Found(False, "mkfs.btrfs is missing", "tvsnap setup")
    return Found(True, "in a loop file in the data directory")


@check(
    "loop devices",
    "no btrfs: file snapshots are copies",
    "modprobe loop (in a container: run it with --privileged), or a TVSNAP_HOME on btrfs",
    root_only=True,
)
def check_loop_devices(home: Path) -> Found:
    """Loop devices, for the file with a btrfs in it; not needed if the data directory is on btrfs."""
    if os.access("/dev/loop-control", os.R_OK | os.W_OK):
        return Found(True, "available")
    if on_btrfs(home):
        return Found(True, "not needed: the data directory is on btrfs")
    return Found(False, "/dev/loop-control cannot be opened")


@check(
    "pool of snapshots",
    "no sandbox can run with this data directory",
    "see above; or choose another data directory: export TVSNAP_HOME=DIRECTORY",
    required=True,
)
def check_pool(home: Path) -> Found:
    """The file with a btrfs in it, or room for one if there is none yet."""
    image = home / POOL_FILE
    try:
        if image.exists():
            PoolFile(image).close()
            return Found(True, f"{image} can be mounted")
        require_room(_existing(home))
        return Found(True, "there is room for it")
    except (TvsnapError, OSError) as error:
        return Found(False, str(error))


@check(
    "disk limits",
    "one sandbox can fill the disk that all share",
    f"Linux {OLDEST_QUOTAS[0]}.{OLDEST_QUOTAS[1]} or newer",
)
def check_disk_limits(home: Path) -> Found:
    """Simple quotas of btrfs, which limit what each sandbox of the local backend writes."""
    if _copies():
        return Found(False, "copies have no quotas", "unset TVSNAP_STORAGE")
    if _kernel() < OLDEST_QUOTAS:
        return Found(False, f"Linux {platform.release()} has no simple quotas of btrfs")
    if on_btrfs(home) and not Quotas(_existing(home)).enabled:
        remedy = "btrfs quota enable --simple DIRECTORY, or a TVSNAP_HOME on another file system than btrfs"
        return Found(False, "the data directory is on a btrfs whose simple quotas are off", remedy)
    return Found(True, "of each sandbox, by simple quotas of btrfs; none in Docker")


@check(
    "users",
    "one sandbox can use up what the kernel lets a user have (buffers of pipes, descriptors in flight)",
    "Linux 5.19 or newer, and a TVSNAP_HOME on ext4, xfs or btrfs",
    root_only=True,
)
def check_users(home: Path) -> Found:
    """Separate users of this machine for each sandbox, so that the kernel's counts for a user count for a sandbox."""
    criu = find_criu()
    if criu is not None and "owners" not in additions(criu):
        return Found(False, "this CRIU gives a fork the users of what it is a fork of", "tvsnap setup")
    if not os.access("/run", os.W_OK):
        lack = "no rights to write /run, where is noted which are in use"
        return Found(False, lack, "mount /run such that it can be written")
    lack = _try([str(native.LAUNCH), "owners", str(_existing(home)), "--ids", str(UID_BASE), str(UID_COUNT)]) or ""
    return Found(not lack, lack or "each sandbox has its own")


@check(
    "network", "sandboxes of images that ask for a network do not start", "Linux 5.9 or newer, with BPF", root_only=True
)
def check_network() -> Found:
    """A network connection for a sandbox, made for a network namespace that ends with this check."""
    complaint = network_complaint()
    return Found(not complaint, complaint or "sandboxes that ask for one can have one")


@check("/dev/shm", "every checkpoint and every fork takes 40-80 ms more", "mount -t tmpfs tmpfs /dev/shm")
def check_memory_files() -> Found:
    """A tmpfs at /dev/shm, for CRIU's data about the kernel."""
    kind = _filesystem(Path("/dev/shm"))
    return Found(kind == "tmpfs", kind or "missing")


@check(
    "open files",
    "rollouts that run side by side fail, and so do forks of live processes",
    f"ulimit -Hn {ENOUGH_DESCRIPTORS} before tvsnap is started; LimitNOFILE= for a service",
)
def check_descriptors() -> Found:
    """Open files that a process may have: each sandbox takes a few, and CRIU some hundreds."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most == resource.RLIM_INFINITY:
        return Found(True, "no limit")
    return Found(most >= ENOUGH_DESCRIPTORS, f"at most {most} in a process")


@check(
    "Debian bootstrap",
    "images that start from a Debian bootstrap, such as terminal, cannot be built",
    "tvsnap setup",
)
def check_bootstrap() -> Found:
    """A program that makes a Debian system from scratch."""
    programs = [program for program in ("mmdebstrap", "debootstrap") if _program(program)]
    return Found(bool(programs), ", ".join(programs) or "neither mmdebstrap nor debootstrap")


@check(
    "disk",
    "snapshotting stops with 1 GiB (or 5 %) left; states are replayed instead",
    "tvsnap gc, or TVSNAP_HOME on a bigger disk",
)
def check_disk(home: Path) -> Found:
    """Room for images and snapshots on the disk of the data directory."""
    free = shutil.disk_usage(_existing(home)).free
    return Found(free >= ENOUGH_DISK, f"{free / GIB:.1f} GiB free")


def _copies() -> bool:
    """Returns whether the local backend is configured to copy files."""
    return os.environ.get("TVSNAP_STORAGE") == "copy"


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())


def _controllers() -> dict[str, int]:
    """Returns the controllers that can be used, each with the version of its hierarchy."""
    versions: dict[str, int] = {}
    for line in _lines("/proc/self/mountinfo"):
        place, _, rest = line.partition(" - ")
        mount_point = place.split()[4]
        kind, _, options = rest.split(maxsplit=2)
        if not os.access(mount_point, os.W_OK):  # as in a container that may only read its groups
            continue
        if kind == "cgroup":
            versions.update({name: 1 for name in CONTROLLERS if name in options.split(",")})
        elif kind == "cgroup2":
            offered = " ".join(_lines(f"{mount_point}/cgroup.controllers")).split()
            versions.update({name: 2 for name in CONTROLLERS if name in offered})
            # In v2, freezing needs no controller: every group except the root can do it, since Linux 5.2.
            versions.setdefault("freezer", 2)
    return versions


def _kernel_has(filesystem: str) -> bool:
    filesystems = {line.split()[-1] for line in _lines("/proc/filesystems") if line.split()}
    return filesystem in filesystems or (
        bool(_program("modprobe")) and _try(["modprobe", "--dry-run", "--quiet", filesystem]) is None
    )


def _filesystem(path: Path) -> str:
    """Returns the type of the filesystem of `path`, in the words of `stat -f`; "" if there is no such path."""
    run = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=False)
    return run.stdout.strip()


def on_btrfs(home: Path) -> bool:
    """Returns whether a data directory is on Btrfs, or would be."""
    return _filesystem(_existing(home)) == "btrfs"


def _existing(path: Path) -> Path:
    """Returns the nearest directory that exists, `path` or above."""
    path = path.absolute()
    return next(directory for directory in (path, *path.parents) if directory.is_dir())


def _program(name: str) -> str | None:
    # Administrators' programs are in sbin, which is not in everyone's PATH.
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))


def _try(command: list[str]) -> str | None:
    """Runs a command that ends soon; returns None if it succeeded, else the last line of its output."""
    try:
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if run.returncode == 0:
        return None
    output = (run.stderr or run.stdout).strip()
    return output.splitlines()[-1] if output else f"{command[0]} ended with status {run.returncode}"


def _lines(path: str) -> Iterable[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
