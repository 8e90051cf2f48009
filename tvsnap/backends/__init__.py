"""Where containers live: the backends by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tvsnap.errors import UsageError

if TYPE_CHECKING:
    from tvsnap.backends.base import Backend


def _local(home: Path, owner: str) -> Backend:
    from tvsnap.backends.local import LocalBackend

    return LocalBackend(home, owner)


def _docker(home: Path, owner: str) -> Backend:
    from tvsnap.backends.docker import DockerBackend

    return DockerBackend(home, owner)


_FACTORIES = {"local": _local, "docker": _docker}


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
    factory = _FACTORIES.get(name)
    if factory is None:
        raise UsageError(f'backend "{name}" not found; have: {", ".join(sorted(_FACTORIES))}')
    return factory(home, owner)
