"""The additional behaviour of a sandbox with a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvsnap.model.images import Image
from tvsnap.model.network import Traffic
from tvsnap.model.observations import Observation
from tvsnap.sandboxes.network.gateway import Gateway

_MOST_NAMED = 50
_MOST_LOOKS = 5


class Networked:
    """The part of a sandbox that deals with the network.

    Attributes:
        id, image: see `tvsnap.sandboxes.protocol.Sandbox`.
        gateway: has its way out, if its image allows a network.
    """

    id: str
    image: Image
    gateway: Gateway

    def traffic(self) -> Traffic:
        """See `Sandbox.traffic`."""
        if not self.image.network.attached:
            return Traffic()
        traffic = self.gateway.traffic(self.id)
        return replace(traffic, asked=traffic.asked[:_MOST_NAMED], refused=traffic.refused[:_MOST_NAMED])

    def is_connected(self) -> bool:
        """Whether there is a connection out of the sandbox."""
        return self.image.network.attached and self.gateway.traffic(self.id, forget=False).open > 0

    def end_connections(self) -> None:
        """Ends the connections out of the sandbox before a snapshot, which cannot hold any."""
        if self.image.network.attached:
            self.gateway.reset(self.id)

    def with_connections(self, look: Callable[[], Observation]) -> Observation:
        """Returns the observation by `look`; with open connections, it is active, because data may arrive at any time.

        Data from a connection that has ended meanwhile may have woken processes that were inspected before, so the look
        is repeated then.
        """
        if not self.image.network.attached:
            return look()
        self.gateway.traffic(self.id, forget=False)
        for _ in range(_MOST_LOOKS):
            observation = look()
            traffic = self.gateway.traffic(self.id, forget=False)
            if traffic.open or not traffic.stirred:
                break
        if not traffic.stirred:
            return observation
        what = f"{traffic.open} connections or look-ups" if traffic.open > 1 else "a connection or look-up"
        return replace(
            observation, active=observation.active or f"{what} out of the sandbox may be answered", quiet_s=0.0
        )
