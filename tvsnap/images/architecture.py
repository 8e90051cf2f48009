"""The name of this machine's architecture in container images."""

from __future__ import annotations

import platform

_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "i686": "386",
}


def this_architecture() -> str:
    """Returns the name of this machine's architecture in images."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)
