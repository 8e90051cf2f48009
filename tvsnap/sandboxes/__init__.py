"""Where containers live: the backends by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tvsnap.model.errors import UsageError

if TYPE_CHECKING:
    from tvsnap.sandboxes.protocol import Backend


def _local(home: Path, owner: str) -> Backend:
    from tvsnap.sandboxes.local import LocalBackend

    return LocalBackend(home, owner)


def _docker(home: Path, owner: str) -> Backend:
    from tvsnap.sandboxes.docker import DockerBackend

    return DockerBackend(home, owner)


_FACTORIES = {"local": _local, "docker": _docker}


def check_name(name: str) -> None:
    """Makes sure that there is a backend of this name.

    Raises:
        UsageError: there is none.
    """
    if name not in _FACTORIES:
        raise UsageError(f'backend "{name}" not found; have: {", ".join(sorted(_FACTORIES))}')


def open_backend(name: str, home: Path, owner: str) -> Backend:
    """Opens a backend; its module is imported only now.

    Args:
        name: the backend's name.
        home: the data directory.
        owner: the id of the process's `Owner`; its sandboxes carry it.

    Raises:
        UsageError: if there is no such backend.
        MachineLacks: if this machine lacks what the backend needs.
    """
    check_name(name)
    return _FACTORIES[name](home, owner)
