"""The relay: a program that takes all connections of sandboxes, and makes those that a policy allows on their behalf.

One runs for each process that has sandboxes with a network. It does what the other end of its standard input asks, a
Unix socket over which descriptors come too, and ends when that is closed.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import itertools
import json
import os
import resource
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from tvsnap.model.network import Network, is_within_reach
from tvsnap.sandboxes.network.addresses import Addresses, stands_for_a_name
from tvsnap.sandboxes.network.settings import NetworkSettings

LONGEST_MESSAGE = 1 << 18
_IP_PKTINFO = 8
_MOST_CONNECTIONS = 128  # of one sandbox at a time
_MOST_QUESTIONS, _MOST_LOOKUPS = 64, 16  # likewise; those beyond the latter wait for their turn
_LOOKUP_THREADS = 256
_MOST_NAMES = 200  # that are told of a call: they fit into one message
_PART = 1 << 16
_CONNECT_TIMEOUT, _LOOKUP_TIMEOUT = 20.0, 10.0  # seconds
_REMEMBERED = 60.0  # seconds for which an answer of the host's name servers is
_OWN_AGAIN = 10.0  # seconds after which the host's own addresses are read again
_TIME_TO_LIVE = 60  # seconds, of the answers inside
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Refused(Exception):
    """What was asked for is not allowed, or not there; the message says which."""


@dataclass(eq=False)
class Way:
    """The way out of one sandbox.

    Attributes:
        network: what it may reach.
        tcp, dns, link: see `WayOut`.
        open: the connections that are being relayed, by their task.
        asked: what was asked of the network since that was last told, each once.
        refused: likewise, what was not allowed.
    """

    network: Network
    tcp: socket.socket
    dns: socket.socket
    link: int
    open: dict[asyncio.Task[None], socket.socket] = field(default_factory=dict)
    asked: dict[str, None] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)
    questions: int = 0
    looking: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_LOOKUPS))
    listening: list[asyncio.Task[None]] = field(default_factory=list)

    def note(self, what: str, *, refused: bool = False) -> None:
        """Notes something that was asked of the network."""
        for noted in (self.asked, self.refused) if refused else (self.asked,):
            if len(noted) < _MOST_NAMES:
                noted[what] = None


class Relay:
    """All ways out of one process's sandboxes."""

    def __init__(self, control: socket.socket, addresses: Addresses, settings: NetworkSettings) -> None:
        self._control = control
        self._addresses = addresses
        self._settings = settings
        self._ways: dict[str, Way] = {}
        self._own: tuple[float, list[ipaddress.IPv4Network | ipaddress.IPv6Network]] = (0.0, [])
        self._found: dict[str, tuple[float, list[str]]] = {}
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Works until the other end of the control socket is closed."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(_LOOKUP_THREADS))
        loop.add_reader(self._control, self._obey)
        await self._ended.wait()

    # What the other end asks.

    def _obey(self) -> None:
        descriptors: list[int] = []
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, LONGEST_MESSAGE, 8)
            if not message:
                self._ended.set()
                return
            answer = self._do(json.loads(message), descriptors)
        except Exception as error:  # the other end is told
            for descriptor in descriptors:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            answer = {"error": f"{type(error).__name__}: {error}"}
        try:
            self._control.send(json.dumps(answer).encode())
        except OSError:
            self._ended.set()

    def _do(self, asked: Mapping[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        id = str(asked["id"])
        if asked["do"] == "open":
            self._open(id, Network.parse(asked["network"]), descriptors)
            return {}
        way = self._ways[id]
        if asked["do"] == "close":
            del self._ways[id]
            self._close(way)
        elif asked["do"] == "reset":
            return {"reset": self._reset(way)}
        elif asked["do"] in ("tell", "take"):
            told = {"open": len(way.open), "asked": list(way.asked), "refused": list(way.refused)}
            if asked["do"] == "take":
                way.asked.clear()
                way.refused.clear()
            return told
        return {}

    def _open(self, id: str, network: Network, descriptors: Sequence[int]) -> None:
        tcp, dns, link = descriptors
        way = Way(network, socket.socket(fileno=tcp), socket.socket(fileno=dns), link)
        for one in (way.tcp, way.dns):
            one.setblocking(False)
        self._ways[id] = way
        asyncio.get_running_loop().add_reader(way.dns, self._receive_question, way)
        way.listening.append(asyncio.ensure_future(self._accept(way)))

    def _close(self, way: Way) -> None:
        asyncio.get_running_loop().remove_reader(way.dns)
        for task in way.listening:
            task.cancel()
        self._reset(way)
        way.tcp.close()
        way.dns.close()
        os.close(way.link)

    def _reset(self, way: Way) -> int:
        """Ends all connections of a sandbox at once; returns how many there were."""
        count = len(way.open)
        for task, inside in list(way.open.items()):
            _reset_at_close(inside)
            task.cancel()
        way.open.clear()
        return count

    # Connections.

    async def _accept(self, way: Way) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                inside, _ = await loop.sock_accept(way.tcp)
            except OSError:  # out of descriptors, say
                await asyncio.sleep(0.1)
                continue
            if len(way.open) >= _MOST_CONNECTIONS:
                _reset_at_close(inside)
                inside.close()
                continue
            task = asyncio.ensure_future(self._relay(way, inside))
            way.open[task] = inside
            task.add_done_callback(lambda done: way.open.pop(done, None))

    async def _relay(self, way: Way, inside: socket.socket) -> None:
        """Relays one connection to its end."""
        outside: asyncio.StreamWriter | None = None
        _reset_at_close(inside)  # whatever happens before all is said
        reader, writer = await asyncio.open_connection(sock=inside)
        try:
            address, port = inside.getsockname()
            far, outside = await self._reach(way, address, port)
            await asyncio.gather(_pump(reader, outside), _pump(far, writer))
            _close_in_turn(inside)
        except (Refused, OSError, asyncio.TimeoutError):
            pass
        finally:
            writer.transport.abort()
            if outside is not None:
                outside.transport.abort()

    async def _reach(self, way: Way, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connects to what an address inside stands for.

        Raises:
            Refused, OSError: that is not allowed, or did not work.
        """
        name = self._addresses.name_of(address)
        if name is None and stands_for_a_name(address):
            raise Refused(f"{address} stands for no name")
        target = name or address
        allowed = way.network.allows(target)
        way.note(f"{target}:{port}", refused=not allowed)
        if not allowed:
            raise Refused(target)
        server = self._settings.server(target)
        if server is not None:
            return await _connect(*server)
        if self._settings.proxy is not None:
            return await _connect_through(self._settings.proxy, target, port)
        for found in [target] if name is None else await self._look_up(way, target):
            if is_within_reach(found, self._own_networks()):
                with contextlib.suppress(OSError, asyncio.TimeoutError):
                    return await _connect(found, port)
        raise Refused(f"{target} cannot be reached")

    async def _look_up(self, way: Way, name: str) -> list[str]:
        """Returns a name's addresses within reach, IPv4 first, as the host's name servers say."""
        until, found = self._found.get(name, (0.0, []))
        if time.monotonic() < until:
            return found
        loop = asyncio.get_running_loop()
        try:
            async with way.looking:
                looked_up = loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
                told = await asyncio.wait_for(looked_up, _LOOKUP_TIMEOUT)
        except (OSError, UnicodeError, asyncio.TimeoutError):
            return []
        own = self._own_networks()
        found = [str(one[4][0]) for one in sorted(told) if is_within_reach(str(one[4][0]).partition("%")[0], own)]
        if len(self._found) > 10 * _MOST_NAMES:
            self._found.clear()
        self._found[name] = (time.monotonic() + _REMEMBERED, found)
        return found

    def _own_networks(self) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        read, networks = self._own
        if time.monotonic() > read + _OWN_AGAIN or not read:
            networks = own_networks()
            self._own = (time.monotonic(), networks)
        return networks

    # Names.

    def _receive_question(self, way: Way) -> None:
        with contextlib.suppress(OSError):
            question, about, _, asker = way.dns.recvmsg(_PART, socket.CMSG_SPACE(12))
            if way.questions < _MOST_QUESTIONS:
                way.questions += 1
                task = asyncio.ensure_future(self._answer(way, question, about, asker))
                way.listening.append(task)
                task.add_done_callback(way.listening.remove)

    async def _answer(self, way: Way, question: bytes, about: list[Any], asker: Any) -> None:
        try:
            answer = await self._reply(way, question)
            asked_of = [data[8:12] for level, kind, data in about if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO)]
            control = [
                (socket.IPPROTO_IP, _IP_PKTINFO, struct.pack("=i4s4s", 0, one, one)) for one in asked_of
            ]  # from whom it was asked
            way.dns.sendmsg([answer], control, 0, asker)
        except (dns.exception.DNSException, OSError, UnicodeError):
            pass  # what is no question has no answer
        finally:
            way.questions -= 1

    async def _reply(self, way: Way, question: bytes) -> bytes:
        asked = dns.message.from_wire(question, ignore_trailing=True)
        reply = dns.message.make_response(asked, recursion_available=True)
        if len(asked.question) != 1:
            reply.set_rcode(dns.rcode.FORMERR)
            return reply.to_wire()
        about = asked.question[0]
        name = about.name.to_text(omit_final_dot=True).lower()
        if about.rdtype == dns.rdatatype.PTR:
            self._name(reply, about)
        elif not await self._is_there(way, name):
            reply.set_rcode(dns.rcode.NXDOMAIN)
        elif about.rdtype == dns.rdatatype.A:
            address = self._addresses.address_of(name)
            reply.answer.append(dns.rrset.from_text(about.name, _TIME_TO_LIVE, "IN", "A", address))
        return reply.to_wire(max_size=1200)

    def _name(self, reply: dns.message.Message, about: dns.rrset.RRset) -> None:
        parts = about.name.to_text().split(".")
        with contextlib.suppress(ValueError):
            name = self._addresses.name_of(".".join(reversed(parts[:4])))
            if name is not None and parts[4:6] == ["in-addr", "arpa"]:
                reply.answer.append(dns.rrset.from_text(about.name, _TIME_TO_LIVE, "IN", "PTR", f"{name}."))
                return
        reply.set_rcode(dns.rcode.NXDOMAIN)

    async def _is_there(self, way: Way, name: str) -> bool:
        """Whether a policy allows a name, and the host finds anything for it."""
        allowed = way.network.allows(name)
        way.note(name, refused=not allowed)
        if not allowed:
            return False
        return name in self._settings.hosts or self._settings.proxy is not None or bool(await self._look_up(way, name))


def own_networks() -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Returns the addresses of this machine, and the networks that it is in, of both families."""
    found: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/route").read_text().splitlines()[1:]:
            _, target, gateway, _, _, _, _, mask, *_ = line.split()
            if int(gateway, 16) == 0 and int(mask, 16):
                numbers = [socket.inet_ntoa(struct.pack("=I", int(one, 16))) for one in (target, mask)]
                found.append(ipaddress.IPv4Network("/".join(numbers), strict=False))
    with contextlib.suppress(OSError):
        lines = Path("/proc/net/fib_trie").read_text().splitlines()
        for above, line in itertools.pairwise(lines):
            if "/32 host LOCAL" in line:
                found.append(ipaddress.IPv4Network(above.split()[-1]))
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, _, prefix, *_ = line.split()
            found.append(ipaddress.IPv6Network((bytes.fromhex(digits), int(prefix, 16)), strict=False))
    return found


async def _connect(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_TIMEOUT)


async def _connect_through(proxy: str, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to a host by way of an HTTP proxy."""
    its = urlsplit(proxy)
    assert its.hostname is not None
    reader, writer = await _connect(its.hostname, its.port or 80)
    who = ""
    if its.username is not None:
        secret = f"{unquote(its.username)}:{unquote(its.password or '')}"
        who = f"Proxy-Authorization: Basic {base64.b64encode(secret.encode()).decode()}\r\n"
    try:
        writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{who}\r\n".encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _CONNECT_TIMEOUT)
        status = answer.split(None, 2)[1:2]
        if status != [b"200"]:
            raise Refused(f"the proxy answered {answer.splitlines()[0][:200]!r}")
    except BaseException as error:
        writer.transport.abort()
        if isinstance(error, (asyncio.IncompleteReadError, asyncio.LimitOverrunError)):
            raise Refused("the proxy did not answer") from None
        raise
    return reader, writer


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes on what one end says, until it has said all."""
    while True:
        part = await reader.read(_PART)
        if not part:
            break
        writer.write(part)
        await writer.drain()
    writer.write_eof()
    await writer.drain()


def _reset_at_close(inside: socket.socket) -> None:
    with contextlib.suppress(OSError):
        inside.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)


def _close_in_turn(inside: socket.socket) -> None:
    with contextlib.suppress(OSError):
        inside.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))


def main() -> None:
    """Runs the relay of the data directory in `argv`, with the settings in `argv`."""
    home, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    certificates = settings.pop("certificates")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # two descriptors for each connection
    control = socket.socket(fileno=0)
    control.setblocking(False)
    addresses = Addresses(home)
    try:
        lent = NetworkSettings(**settings, certificates=Path(certificates) if certificates else None)
        relay = Relay(control, addresses, lent)
        asyncio.run(relay.run())
    finally:
        addresses.close()


if __name__ == "__main__":
    main()
