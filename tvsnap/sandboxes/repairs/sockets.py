"""The repair of sockets: TCP connections, those that have ended but keep their port, and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tvsnap.sandboxes.repairs import socket_options, tcp, tcp_ends
from tvsnap.sandboxes.repairs.repair import Fork, Frozen
from tvsnap.sandboxes.repairs.time_wait import Closed


@dataclass(frozen=True, slots=True)
class Sockets:
    """See `Repair`.

    Attributes:
        closed: the connections that were in TIME_WAIT.
        connections: whether there were others, which are in a file beside CRIU's.
        options: whether there were socket options that CRIU does not restore, which are in another such file.
    """

    closed: tuple[Closed, ...] = ()
    connections: bool = False
    options: bool = False

    @classmethod
    def note(cls, frozen: Frozen) -> Sockets | None:
        """See `Repair.note`; all connections are of one look."""
        pairs, others = tcp.note(frozen.time_waits.present, frozen.init, frozen.pids)
        closed = tuple(frozen.time_waits.note(frozen.pids, others))
        connections = tcp.FILE.write(pairs, frozen.images)
        options = socket_options.FILE.write(frozen.options, frozen.images)
        return cls(closed, connections, options) if closed or connections or options else None

    @classmethod
    def from_json(cls, manifest: Mapping[str, Any]) -> Sockets | None:
        """See `Repair.from_json`."""
        closed = tuple(map(Closed.from_json, manifest["time_wait"]))
        connections, options = bool(manifest.get("connections")), bool(manifest.get("options"))
        return cls(closed, connections, options) if closed or connections or options else None

    def to_json(self) -> dict[str, Any]:
        """See `Repair.to_json`."""
        closed = [asdict(one) for one in self.closed]
        return {"time_wait": closed, "connections": self.connections, "options": self.options}

    def bring_back(self, fork: Fork) -> None:
        """See `Repair.bring_back`."""
        options = socket_options.FILE.read(fork.images) if self.options else []
        if options:  # before the connections, which inherit those of the socket that listens
            socket_options.bring_back(fork.init, fork.pids(), options, late=False)
        if self.connections:
            tcp_ends.bring_back(fork.init, fork.pids(), tcp.FILE.read(fork.images))
        if options:  # the connections' own, and those that change how connections are accepted
            socket_options.bring_back(fork.init, fork.pids(), options, late=True)
        # Last: a connection that waits to be accepted binds its port, which one in TIME_WAIT may hold.
        fork.time_waits.bring_back(self.closed)
