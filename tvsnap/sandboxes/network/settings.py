"""The host's resources for sandboxes that have a network: proxies, certificates, and servers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tvsnap.model.errors import UsageError

_SERVER = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\[\]]+):(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Settings for connections that leave a sandbox.

    Attributes:
        proxy: the address of an HTTP proxy ("http://proxy:3128") for all connections, by its method CONNECT; None to
            connect directly.
        certificates: a file of certificates (PEM) that programs in sandboxes are to trust too; None for none.
        hosts: servers by the names that sandboxes use, as `host:port` on the host's side, whatever the port inside.
            This is the only way to reach a server on this machine or in a private network.

    Raises:
        UsageError: one of them is invalid.
    """

    proxy: str | None = None
    certificates: Path | None = None
    hosts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.proxy is not None:
            url = urlsplit(self.proxy)
            if url.scheme != "http" or not url.hostname:
                shown = f"...@{self.proxy.rpartition('@')[2]}" if "@" in self.proxy else self.proxy  # no password
                raise UsageError(f"{shown!r} is no HTTP proxy; give its address as http://host:port")
        if self.certificates is not None and not self.certificates.is_file():
            raise UsageError(f"there is no file of certificates at {self.certificates}")
        for name, server in self.hosts.items():
            if not _SERVER.fullmatch(server):
                raise UsageError(f"{name} cannot stand for {server!r}; give host:port")

    @classmethod
    def of_environment(cls) -> NetworkSettings:
        """Returns the settings in `TVSNAP_NETWORK_PROXY`, `TVSNAP_NETWORK_CERTIFICATES` and `TVSNAP_NETWORK_HOSTS`.

        The last is a comma-separated list of `name=host:port`. A variable that is not set means None.

        Raises:
            UsageError: one of them is invalid; the message names it.
        """
        proxy = os.environ.get("TVSNAP_NETWORK_PROXY") or None
        certificates = os.environ.get("TVSNAP_NETWORK_CERTIFICATES")
        hosts: dict[str, str] = {}
        for pair in filter(None, os.environ.get("TVSNAP_NETWORK_HOSTS", "").split(",")):
            name, equals, server = pair.strip().partition("=")
            if not equals:
                raise UsageError(f"TVSNAP_NETWORK_HOSTS has {pair!r}; give name=host:port")
            hosts[name.lower()] = server
        return cls(proxy, Path(certificates) if certificates else None, hosts)

    def server(self, name: str) -> tuple[str, int] | None:
        """Returns the host and port of a name's server on the host's side; None if it has none.

        Args:
            name: the name, in lower case.
        """
        match = _SERVER.fullmatch(self.hosts.get(name, ""))
        return (match["host"].strip("[]"), int(match["port"])) if match else None
