"""Resolves names outside, and decides which addresses may be reached."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import re
import socket
import struct
import time
from pathlib import Path

from tvsnap.model.network import is_private_name, is_within_reach
from tvsnap.sandboxes.network.settings import NetworkSettings

_TIMEOUT = 10.0  # seconds
_TIMEOUT_BESIDE_A_PROXY = 2.0  # the proxy resolves names itself, and the host may have no name servers then
_REMEMBERED = 60.0  # seconds for which an answer of the host's name servers is cached
_MOST_REMEMBERED = 2000
_LOCAL = re.compile(r"/(\d+) host LOCAL")
_OWN_AGAIN = 10.0  # seconds after which the host's own addresses are read again


class Resolver:
    """Resolves names as the host does, for sandboxes that may not reach private addresses."""

    def __init__(self, settings: NetworkSettings) -> None:
        self._settings = settings
        self._timeout = _TIMEOUT if settings.proxy is None else _TIMEOUT_BESIDE_A_PROXY
        self._cache: dict[str, tuple[float, list[str]]] = {}
        self._own: tuple[float, list[ipaddress.IPv4Network | ipaddress.IPv6Network]] = (0.0, [])

    async def is_there(self, name: str, turn: asyncio.Semaphore) -> bool:
        """Whether a host name (in lower case) has something that may be reached; holds `turn` while it is resolved."""
        if self._settings.server(name) is not None:
            return True
        addresses = await self._look_up(name, turn)
        if self._settings.proxy is not None and not addresses:
            return not is_private_name(name)  # the proxy resolves it
        return any(map(self.reaches, addresses))

    async def addresses(self, name: str, turn: asyncio.Semaphore) -> list[str]:
        """Returns a name's addresses that may be reached, IPv4 first; arguments as for `is_there`."""
        return [address for address in await self._look_up(name, turn) if self.reaches(address)]

    def reaches(self, address: str) -> bool:
        """Whether an address is neither the host's nor in a private network."""
        return is_within_reach(address, self._own_networks())

    async def _look_up(self, name: str, turn: asyncio.Semaphore) -> list[str]:
        until, addresses = self._cache.get(name, (0.0, []))
        if time.monotonic() < until:
            return addresses
        try:
            async with turn:
                looked_up = asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
                answers = await asyncio.wait_for(looked_up, self._timeout)
        except (OSError, UnicodeError, asyncio.TimeoutError):
            answers = []
            if self._settings.proxy is None:
                return []
        addresses = [str(one[4][0]).partition("%")[0] for one in sorted(answers)]
        if len(self._cache) >= _MOST_REMEMBERED:
            self._cache.clear()
        self._cache[name] = (time.monotonic() + _REMEMBERED, addresses)
        return addresses

    def _own_networks(self) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        read_at, networks = self._own
        if time.monotonic() > read_at + _OWN_AGAIN or not read_at:
            networks = own_networks()
            self._own = (time.monotonic(), networks)
        return networks


def has_version_6() -> bool:
    """Whether this machine has a way to all addresses of IPv6."""
    try:
        routes = [line.split() for line in Path("/proc/net/ipv6_route").read_text().splitlines()]
    except OSError:
        return False
    return any(route[1] == "00" and set(route[0]) == {"0"} and route[-1] != "lo" for route in routes)


def own_networks() -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Returns this machine's addresses and networks, IPv4 and IPv6."""
    networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/route").read_text().splitlines()[1:]:
            _, target, gateway, _, _, _, _, mask, *_ = line.split()
            if int(gateway, 16) == 0 and int(mask, 16):
                numbers = [socket.inet_ntoa(struct.pack("=I", int(one, 16))) for one in (target, mask)]
                networks.append(ipaddress.IPv4Network("/".join(numbers), strict=False))
    with contextlib.suppress(OSError):
        lines = Path("/proc/net/fib_trie").read_text().splitlines()
        for above, line in itertools.pairwise(lines):
            if is_local := _LOCAL.search(line):
                networks.append(ipaddress.IPv4Network(f"{above.split()[-1]}/{is_local[1]}", strict=False))
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, _, prefix, *_ = line.split()
            networks.append(ipaddress.IPv6Network((bytes.fromhex(digits), int(prefix, 16)), strict=False))
    return networks
