"""Says once that a call lacked a network that its sandbox was not given: on standard error, not in its output."""

from __future__ import annotations

import typer

from tvsnap.model.network import Network, lacks_network


class NetworkHint:
    """Looks at what calls print, until one of them lacked a network that its sandbox was not given."""

    def __init__(self) -> None:
        self._given = False

    def look(self, output: str, image: str, network: Network) -> None:
        """Prints the hint if this is the first such call.

        Args:
            output: what it printed.
            image: the name of its image.
            network: what its sandbox may reach.
        """
        if self._given or network.attached or not lacks_network(output):
            return
        self._given = True
        typer.echo(
            f"tvsnap: a call reached no host, for sandboxes of {image} have no network; image.yaml gives them one "
            "(network: public), or tvsnap run --network public",
            err=True,
        )
