"""Opens backends, which provide sandboxes, by name."""

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
"""The core's own backend; others are found by their entry points."""


def check_name(name: str) -> None:
    """Raises UsageError unless `name` is `local`, an entry point in `tvsnap.backends`, or a reference to a backend.

    A reference has the form `package.module:attribute`.
    """
    plugins.check_name("backend", name, FACTORIES)


def open_backend(name: str, home: Path, owner: str, network: NetworkSettings | None = None) -> Backend:
    """Opens a backend; its module is imported only now.

    Raises UsageError if there is no such backend, and MachineLacks if this machine lacks what the backend needs.

    Args:
        name: see `check_name`; an entry point or a reference names a class or a function that returns a backend; it is
            called with the two following arguments, and with `network` if it has such a parameter.
        home: the data directory.
        owner: the id of the process's `Owner`; its sandboxes carry it.
        network: the host's resources for sandboxes that have a network.
    """
    factory = FACTORIES.get(name) or plugins.find("backend", name, FACTORIES)
    takes_network = "network" in inspect.signature(factory).parameters
    backend = factory(home, owner, network=network) if takes_network else factory(home, owner)
    return check_provides(backend, "fork", f"what {name} makes must be a tvsnap.Backend")


def checks(home: Path) -> list[Check]:
    """Returns the checks of this machine that packages' backends contribute to `tvsnap doctor`.

    The class or function that an entry point names may have an attribute `checks`: a function that is called with the
    data directory and returns a `Check` for each thing that the backend needs.
    """
    results: list[Check] = []
    for name in plugins.names("backend"):
        try:
            look = getattr(plugins.find("backend", name), "checks", None)
        except UsageError as error:  # noqa: PERF203
            cost, remedy = f"no --backend {name}", "install the package that brings it anew"
            results.append(Check(f"backend {name}", False, False, str(error), cost, remedy))
        else:
            results += look(home) if look is not None else ()
    return results
