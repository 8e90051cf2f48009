"""What a server is told: where it listens, whom it lets in, and what a client may hold."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from tvsnap.model.arguments import check_seconds, check_whole
from tvsnap.model.errors import UsageError
from tvsnap.server.tenants import Tenant

DEFAULT_PORT = 8420
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How a server listens, and its limits.

    Attributes:
        host: the address at which it listens for TCP; None for none.
        port: the port; 0 for any that is free.
        socket: the path of a Unix socket at which it listens, too; None for none.
        socket_mode: the permission bits of the Unix socket, which say who may use it: no token is asked for there.
        socket_group: the group of the Unix socket, by name or number; None for that of the process.
        tokens: those that clients may show, with the tenant that shows each, or None for who may see all; empty where
            none is asked for, which only the loopback address allows.
        ttl: seconds without a request after which a rollout or a sandbox of a client is ended.
        max_body: bytes of a request's body at most.
        max_upload: bytes of an uploaded content at most.
        max_connections: how many connections there may be at once.
        max_rollouts: how many rollouts may be open at once.
        max_sandboxes: how many sandboxes clients may hold at once beside those of rollouts.
        max_environments: how many environments of one task TVCache's clients keep.
        tvcache: whether it answers TVCache's clients, too.
        grace: seconds that requests under way are given when the server is stopped.

    Raises:
        UsageError: a setting makes no sense, or the server would listen beyond this machine without a token.
    """

    host: str | None = "127.0.0.1"
    port: int = DEFAULT_PORT
    socket: Path | None = None
    socket_mode: int = 0o660
    socket_group: str | None = None
    tokens: Mapping[str, Tenant | None] = field(default_factory=dict)
    ttl: float = 3600.0
    max_body: int = 16 * MIB
    max_upload: int = 4096 * MIB
    max_connections: int = 4096
    max_rollouts: int = 10_000
    max_sandboxes: int = 64
    max_environments: int = 50
    tvcache: bool = False
    grace: float = 10.0

    def __post_init__(self) -> None:
        for one in fields(self):
            if one.name.startswith("max_"):
                check_whole(getattr(self, one.name), one.name, 1)
        check_whole(self.port, "port", 0, 65535)
        check_seconds(self.ttl, "ttl")
        check_seconds(self.grace, "grace", least=0.0)
        if self.host is None and self.socket is None:
            raise UsageError("the server would listen nowhere: give a host, a socket, or both")
        if self.host is not None and not self.tokens and not is_loopback(self.host):
            raise UsageError(
                f"the server refuses to listen at {self.host} without authentication, as anyone who reaches it could "
                "run commands: give a token file (--token-file), or listen at 127.0.0.1"
            )


def is_loopback(host: str) -> bool:
    """Returns whether only programs of this machine reach an address.

    Args:
        host: an address, or a name.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
