"""Finds this machine's CRIU, and checks whether it is suitable."""

from __future__ import annotations

import functools
import mmap
import os
import re
import shutil
import subprocess
from pathlib import Path

from tvsnap.host import native, scripts

OLDEST_CRIU = (4, 2)
"""Older versions fail on current kernels (3.17 on Linux 6.18, because of its vDSO)."""

KEPT = Path("/usr/local/lib/tvsnap")
"""Directories in which `tvsnap setup` installs the CRIU that it builds."""

_ADDITIONS = re.compile(rb"tvsnap-additions: ([a-z, ]+)\0")


def find_criu() -> Path | None:
    """Returns the CRIU to use, or None if this machine has none.

    Search order: `$TVSNAP_CRIU`, and nothing else if that is set (a path that does not exist simulates a machine
    without CRIU); the newest one of the package and of those that `tvsnap setup` installed, for all users or in the
    user's cache; `PATH`.
    """
    chosen = os.environ.get("TVSNAP_CRIU")
    if chosen:
        return Path(chosen) if _runs(Path(chosen)) else None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tvsnap"
    places = (native.BIN, KEPT, cache)
    binaries = [binary for place in places for binary in place.glob("criu-*/criu") if _runs(binary)]
    if binaries:
        return max(binaries, key=lambda binary: _numbers(binary.parent.name))
    # Debian installs CRIU in sbin, which is not in every PATH.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])
    program = shutil.which("criu", path=path)
    return Path(program) if program else None


def criu_version(binary: Path) -> tuple[int, ...]:
    """Returns the version of a CRIU, such as `(4, 2, 1)`; `()` if it does not run."""
    try:
        run = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"^Version: (\S+)", run.stdout, re.MULTILINE)
    return _numbers(match[1]) if match else ()


def is_current(binary: Path) -> bool:
    """Whether a CRIU has all additions of this version of tvsnap."""
    return binary.parent.name.endswith(f"-{scripts.criu_additions()}")


@functools.cache
def additions(binary: Path) -> frozenset[str]:
    """Returns the additions of a CRIU to the stock version; one that tvsnap built has all that are listed here.

    "terminals": restores the controlling terminals of processes that are no session leaders. "owners": maps a fork's
    users to other users of this machine than those of its origin. "queues": restores /dev/tty, packet mode, and data
    queued at a terminal with a slave that no process has open. "roots": restores Unix sockets of processes with their
    own root directory. "watches": leaves inotify watches to the caller of a dump. "pages": writes only pages that an
    earlier dump does not have. "locks": restores locks of fcntl on mapped files. "timers": restores the exact time of
    absolute timerfds. "held": restores large heaps from a process that holds them. "mappings": mappings that no process
    could write to are not writable while they are restored. The files in `native/criu` implement them, and mark the
    binary.
    """
    with open(binary, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as program:
        match = _ADDITIONS.search(program)
        return frozenset(match[1].decode().split(", ")) if match else frozenset()


def criu_complaint(binary: Path) -> str | None:
    """Returns the first error that `criu check` reports, in one line; None if it reports none."""
    try:
        run = subprocess.run([binary, "check"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if run.returncode == 0:
        return None
    lines = [line.strip() for line in (run.stderr + run.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("Error")]
    return (errors or lines or [f"criu check ended with status {run.returncode}"])[0]


def _runs(binary: Path) -> bool:
    # Not `Path.is_file`, which raises if a directory on the way is not searchable.
    return os.path.isfile(binary) and os.access(binary, os.X_OK)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
