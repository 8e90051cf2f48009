"""What a sandbox with a way out does beyond others."""

from __future__ import annotations

from dataclasses import replace

from tvsnap.model.images import Image
from tvsnap.model.network import Traffic
from tvsnap.model.observations import Observation
from tvsnap.sandboxes.network.gateway import Gateway

_MOST_NAMED = 50


class Networked:
    """The part of a sandbox that deals with the network.

    Attributes:
        id, image: see `tvsnap.sandboxes.protocol.Sandbox`.
        gateway: where its way out is, if its image lets it have one.
    """

    id: str
    image: Image
    gateway: Gateway

    def traffic(self) -> Traffic:
        """See `Sandbox.traffic`."""
        if not self.image.network.attached:
            return Traffic()
        told = self.gateway.traffic(self.id)
        return replace(told, asked=told.asked[:_MOST_NAMED], refused=told.refused[:_MOST_NAMED])

    def is_connected(self) -> bool:
        """Returns whether there is a connection out of it."""
        return bool(self._connections())

    def end_connections(self) -> None:
        """Ends the connections out of it, before a snapshot, which holds none."""
        if self.image.network.attached:
            self.gateway.reset(self.id)

    def with_connections(self, seen: Observation) -> Observation:
        """Returns how it looks, where connections out of it count: what comes over one comes when it likes."""
        if not (count := self._connections()):
            return seen
        what = "a connection" if count == 1 else f"{count} connections"
        return replace(seen, active=seen.active or f"{what} out of the sandbox may be written to", quiet_s=0.0)

    def _connections(self) -> int:
        return self.gateway.traffic(self.id, forget=False).open if self.image.network.attached else 0
