"""A hint on standard error, printed once, that a call failed because its sandbox has no network."""

from __future__ import annotations

import typer

from tvsnap.model.network import Network, lacks_network


class NetworkHint:
    """Examines the output of calls until one of them failed because its sandbox has no network."""

    def __init__(self) -> None:
        self._was_given = False

    def look(self, output: str, image: str, network: Network) -> None:
        """Prints the hint if this is the first such call; `network` is its sandbox's."""
        if self._was_given or network.attached or not lacks_network(output):
            return
        self._was_given = True
        typer.echo(
            f"tvsnap: a call reached no host, for sandboxes of {image} have no network; image.yaml gives them one "
            "(network: public), or tvsnap run --network public",
            err=True,
        )
