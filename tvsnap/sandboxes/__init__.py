"""Where containers live: the backends by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tvsnap.host import plugins
from tvsnap.model.arguments import check_provides

if TYPE_CHECKING:
    from tvsnap.sandboxes.network.settings import NetworkSettings
    from tvsnap.sandboxes.protocol import Backend


def _local(home: Path, owner: str, network: NetworkSettings | None = None) -> Backend:
    from tvsnap.sandboxes.local import LocalBackend

    return LocalBackend(home, owner, network)


def _docker(home: Path, owner: str, network: NetworkSettings | None = None) -> Backend:
    from tvsnap.sandboxes.docker import DockerBackend

    return DockerBackend(home, owner, network=network)


FACTORIES = {"local": _local, "docker": _docker}


def check_name(name: str) -> None:
    """Makes sure that there is a backend of this name: ours, or a package's with an entry point in `tvsnap.backends`.

    A reference, `package.module:attribute`, will do as well.

    Raises:
        UsageError: there is none.
    """
    plugins.check_name("backend", name, FACTORIES)


def open_backend(name: str, home: Path, owner: str, network: NetworkSettings | None = None) -> Backend:
    """Opens a backend; its module is imported only now.

    Args:
        name: see `check_name`; of another package it names a class, or a function, that is called with the two
            arguments that follow here and returns a backend.
        home: the data directory.
        owner: the id of the process's `Owner`; its sandboxes carry it.
        network: what the host lends to sandboxes that have a network, for our own backends.

    Raises:
        UsageError: if there is no such backend.
        MachineLacks: if this machine lacks what the backend needs.
    """
    factory = FACTORIES.get(name) or plugins.find("backend", name, FACTORIES)
    made = factory(home, owner, network) if factory in (_local, _docker) else factory(home, owner)
    return check_provides(made, "fork", f"what {name} makes must be a tvsnap.Backend")
