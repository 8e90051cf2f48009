"""Finds the CRIU that this machine has, and tells whether it will do."""

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
"""Older ones fail on the kernels of today (3.17 on Linux 6.18, for its vDSO)."""

KEPT = Path("/usr/local/lib/tvsnap")
"""Where `tvsnap setup` keeps the CRIU that it builds."""

_ADDITIONS = re.compile(rb"tvsnap-additions: ([a-z, ]+)\0")


def find_criu() -> Path | None:
    """Returns the CRIU to use, or None if this machine has none.

    Looked for in this order: `$TVSNAP_CRIU`, which counts alone if it is set (a path where nothing is simulates
    a machine without CRIU); the newest of that which the package carries and those that `tvsnap setup` kept, for all or
    in the user's cache; `PATH`.
    """
    chosen = os.environ.get("TVSNAP_CRIU")
    if chosen:
        return Path(chosen) if _runs(Path(chosen)) else None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tvsnap"
    places = (native.BIN, KEPT, cache)
    kept = [binary for place in places for binary in place.glob("criu-*/criu") if _runs(binary)]
    if kept:
        return max(kept, key=lambda binary: _numbers(binary.parent.name))
    # Debian's CRIU lives in sbin, which is not in everyone's PATH.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])
    found = shutil.which("criu", path=path)
    return Path(found) if found else None


def criu_version(binary: Path) -> tuple[int, ...]:
    """Returns the version of a CRIU, such as `(4, 2, 1)`; `()` if it does not run."""
    try:
        run = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"^Version: (\S+)", run.stdout, re.MULTILINE)
    return _numbers(match[1]) if match else ()


def is_current(binary: Path) -> bool:
    """Whether a CRIU has been given all that this version of tvsnap would give it."""
    return binary.parent.name.endswith(f"-{scripts.criu_additions()}")


@functools.cache
def additions(binary: Path) -> frozenset[str]:
    """Returns what a CRIU has been given that stock CRIU lacks: all that is listed here if it is ours.

    "terminals": it brings back those of processes that lead no session. "owners": it gives a fork other users of this
    machine than what it is a fork of had. "queues": it brings back /dev/tty, packet mode, and what waits at a
    terminal of which no process has the slave open. "roots": it brings back Unix sockets of processes with a root
    directory of their own. "watches": it leaves watches of inotify to who asks for a dump. The files in
    `native/criu` tell how, and mark the binary.
    """
    with open(binary, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as program:
        found = _ADDITIONS.search(program)
        return frozenset(found[1].decode().split(", ")) if found else frozenset()


def criu_complaint(binary: Path) -> str | None:
    """Returns what `criu check` finds wrong with this machine, in one line; None if it finds nothing."""
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
    # Not `Path.is_file`, which raises where a directory on the way may not be entered.
    return os.path.isfile(binary) and os.access(binary, os.X_OK)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
