"""A snapshot's requirements of a machine: whether one that was taken elsewhere can be forked here."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvsnap.sandboxes.criu.binary import criu_version
from tvsnap.sandboxes.criu.client import Criu
from tvsnap.sandboxes.local.snapshot_store import FORMAT

_CPUINFO = Path("/proc/cpuinfo")
_FLAGS = re.compile(r"^(?:flags|Features)\s*:\s*(.*)$", re.MULTILINE)


def requirements(guest: str, criu: Criu | None) -> dict[str, Any]:
    """Returns the requirements of this machine's snapshots for use elsewhere.

    Args:
        guest: the version of PID 1.
        criu: the program that dumped its processes; None if it holds none.
    """
    needed: dict[str, Any] = {"machine": platform.machine(), "format": FORMAT, "guest": guest}
    if criu is not None:
        needed |= {
            "kernel": kernel(),
            "criu": list(criu_version(criu.binary)),
            "additions": sorted(criu.additions),
            "processor": sorted(processor_flags()),
        }
    return needed


def unfit(needed: Mapping[str, Any], guest: str, criu: Criu | None) -> str | None:
    """Returns why a snapshot that needs this cannot be forked on this machine; None if it can.

    Processes are restored only if the kernel is of the same series, CRIU the same, and the processor has all that
    programs may have found when they started.

    Args:
        needed: the result of `requirements` there.
        guest: the version of PID 1 here.
        criu: of this machine; None if there is none.
    """
    try:
        if needed["machine"] != platform.machine():
            return f"it is of another architecture ({needed['machine']})"
        if needed["format"] != FORMAT or needed["guest"] != guest:
            return "it is of another version of tvsnap"
        if "criu" not in needed:
            return None
        if criu is None:
            return "it holds processes, and there is no CRIU here"
        if needed["criu"] != list(criu_version(criu.binary)) or set(needed["additions"]) != criu.additions:
            return "its processes were dumped by another CRIU"
        if needed["kernel"] != kernel():
            return f"its processes ran on Linux {needed['kernel']}, and this is {kernel()}"
        if missing := set(needed["processor"]) - processor_flags():
            return f"this processor lacks {', '.join(sorted(missing)[:5])}"
    except (KeyError, TypeError) as error:
        return f"what it needs makes no sense ({error})"
    return None


def kernel() -> str:
    """Returns the series of the running kernel, such as `6.1`."""
    return ".".join(platform.release().split(".")[:2])


def processor_flags() -> frozenset[str]:
    """Returns the processor's features by the kernel's names."""
    match = _FLAGS.search(_CPUINFO.read_text(errors="replace"))
    return frozenset(match[1].split() if match else ())
