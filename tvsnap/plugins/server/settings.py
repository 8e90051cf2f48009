"""The settings of a server: where it listens, whom it lets in, and what a client may hold."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from tvsnap.model.arguments import check_seconds, check_whole
from tvsnap.model.errors import UsageError
from tvsnap.plugins.server.tenants import Tenant

DEFAULT_PORT = 8420
MIB = 1024 * 1024
LEAST_WORKER_PATIENCE = 3.0
"""Seconds: a process shows each second that it is at work."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The addresses of a server, and its limits.

    Attributes:
        host: the address at which it listens for TCP; None for none.
        port: the port; 0 for any that is free.
        socket: the path of a Unix socket at which it listens, too; None for none.
        socket_mode: the permission bits of the Unix socket, which say who may use it: no token is asked for there.
        socket_group: the group of the Unix socket, by name or number; None for that of the process.
        tokens: those that clients may show, with the tenant that shows each, or None for who may see all; empty if
            none is asked for, which only the loopback address or certificates of clients allow.
        tls_certificate: a file with the certificate that is shown at the TCP port, followed by those that lead to its
            authority's; None for no TLS. The Unix socket has none.
        tls_key: a file with the certificate's key; None if the same file holds it.
        tls_client_ca: a file with the certificates of authorities: clients must show a certificate of one of these.
            None if none is asked for.
        ttl: seconds without a request after which a rollout or a sandbox of a client is ended.
        patience: seconds that a client has for the head of a request, for its body or a MiB of that, and for taking
            something of an answer.
        max_body: bytes of a request's body at most.
        max_upload: bytes of an uploaded content at most.
        max_connections: connections at once, at most.
        max_rollouts: open rollouts at once, at most.
        max_sandboxes: sandboxes that clients hold at once beside those of rollouts, at most.
        max_environments: environments of one task that TVCache's clients keep, at most.
        tvcache: whether it answers TVCache's clients, too.
        store: the address of an object store in which tasks are kept (see `StoredTasks`); None for none.
        grace: seconds that requests under way are given when the server is stopped.
        worker_patience: seconds after which one of several processes that does nothing any more is killed, and started
            again.
        log_format: `json` for a line of JSON for each request; `text` for none.

    Raises:
        UsageError: a setting makes no sense, or the server would listen beyond this machine without authentication.
    """

    host: str | None = "127.0.0.1"
    port: int = DEFAULT_PORT
    socket: Path | None = None
    socket_mode: int = 0o660
    socket_group: str | None = None
    tokens: Mapping[str, Tenant | None] = field(default_factory=dict)
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    ttl: float = 3600.0
    patience: float = 60.0
    max_body: int = 16 * MIB
    max_upload: int = 4096 * MIB
    max_connections: int = 4096
    max_rollouts: int = 10_000
    max_sandboxes: int = 64
    max_environments: int = 50
    tvcache: bool = False
    store: str | None = None
    grace: float = 10.0
    worker_patience: float = 120.0
    log_format: str = "text"

    def __post_init__(self) -> None:
        for one in fields(self):
            if one.name.startswith("max_"):
                check_whole(getattr(self, one.name), one.name, 1)
        check_whole(self.port, "port", 0, 65535)
        check_seconds(self.ttl, "ttl")
        check_seconds(self.patience, "patience")
        check_seconds(self.grace, "grace", least=0.0)
        check_seconds(self.worker_patience, "worker_patience", least=LEAST_WORKER_PATIENCE)
        if self.log_format not in ("text", "json"):
            raise UsageError(f"the format of the log must be text or json, not {self.log_format!r} (--log-format)")
        if self.host is None and self.socket is None:
            raise UsageError("the server would listen nowhere: give a host, a socket, or both")
        if self.tls_certificate is None and (self.tls_key or self.tls_client_ca):
            raise UsageError("a key and authorities for TLS are of no use without a certificate (--tls-certificate)")
        if self.host is None and self.tls_certificate is not None:
            raise UsageError("TLS is for the TCP port, and the server has none: leave out --tls-certificate, or --host")
        if self.host is not None and not (self.tokens or self.tls_client_ca or is_loopback(self.host)):
            raise UsageError(
                f"the server refuses to listen at {self.host} without authentication, as anyone who reaches it could "
                "run commands: give a token file (--token-file), ask for certificates (--tls-client-ca), or listen at "
                "127.0.0.1"
            )


@functools.lru_cache(64)
def is_loopback(host: str) -> bool:
    """Returns whether only programs of this machine reach an address.

    Args:
        host: an address, or a name.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
