"""Names the machine that the figures are of."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvsnap.sandboxes.criu.binary import criu_version, find_criu


def describe() -> Mapping[str, Any]:
    """Returns what the figures depend on: processors, memory, kernel, versions, and how busy the machine is."""
    criu = find_criu()
    return {
        "cpu": _found(r"^model name\s*: (.*)$", "/proc/cpuinfo") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(_found(r"^MemTotal:\s*(\d+)", "/proc/meminfo") or 0) / 1024**2, 1),
        "kernel": platform.release(),
        "system": _found(r'^PRETTY_NAME="?([^"\n]*)', "/etc/os-release"),
        "python": platform.python_version(),
        "criu": ".".join(map(str, criu_version(criu))) if criu else "none",
        "load": round(os.getloadavg()[0], 2),
    }


def in_words(machine: Mapping[str, Any]) -> str:
    """Returns the description as a line for people."""
    return (
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB, Linux {machine['kernel']}, "
        f"{machine['system']}, CRIU {machine['criu']}, Python {machine['python']}; load {machine['load']} at the start"
    )


def _found(pattern: str, path: str) -> str:
    try:
        match = re.search(pattern, Path(path).read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return ""
    return match[1].strip() if match else ""
