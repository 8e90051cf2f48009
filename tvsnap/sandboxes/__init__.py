"""Where containers live: the backends by name."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from tvsnap.host import plugins
from tvsnap.host.checks import Check
from tvsnap.model.arguments import check_provides
from tvsnap.model.errors import UsageError

if TYPE_CHECKING:
    from tvsnap.sandboxes.network.settings import NetworkSettings
    from tvsnap.sandboxes.protocol import Backend


def _local(home: Path, owner: str, network: NetworkSettings | None = None) -> Backend:
    from tvsnap.sandboxes.local import LocalBackend

    return LocalBackend(home, owner, network)


FACTORIES = {"local": _local}
"""The backend of the core; others are found by their entry points."""


def check_name(name: str) -> None:
    """Makes sure that there is a backend of this name: `local`, or one with an entry point in `tvsnap.backends`.

    A reference, `package.module:attribute`, will do as well.

    Raises:
        UsageError: there is none.
    """
    plugins.check_name("backend", name, FACTORIES)


def open_backend(name: str, home: Path, owner: str, network: NetworkSettings | None = None) -> Backend:
    """Opens a backend; its module is imported only now.

    Args:
        name: see `check_name`; an entry point or a reference names a class, or a function, that is called with the
            two arguments that follow here, and with `network` if it has such a parameter, and returns a backend.
        home: the data directory.
        owner: the id of the process's `Owner`; its sandboxes carry it.
        network: what the host lends to sandboxes that have a network.

    Raises:
        UsageError: if there is no such backend.
        MachineLacks: if this machine lacks what the backend needs.
    """
    factory = FACTORIES.get(name) or plugins.find("backend", name, FACTORIES)
    takes_network = "network" in inspect.signature(factory).parameters
    made = factory(home, owner, network=network) if takes_network else factory(home, owner)
    return check_provides(made, "fork", f"what {name} makes must be a tvsnap.Backend")


def checks(home: Path) -> list[Check]:
    """Returns what backends of packages find out about this machine for `tvsnap doctor`.

    What the entry point names, a class or a function, may have an attribute `checks`: a function that is called with
    the data directory and returns a `Check` for each thing that the backend needs.
    """
    found: list[Check] = []
    for name in plugins.names("backend"):
        try:
            look = getattr(plugins.find("backend", name), "checks", None)
        except UsageError as error:  # noqa: PERF203
            cost, remedy = f"no --backend {name}", "install the package that brings it anew"
            found.append(Check(f"backend {name}", False, False, str(error), cost, remedy))
        else:
            found += look(home) if look is not None else ()
    return found
