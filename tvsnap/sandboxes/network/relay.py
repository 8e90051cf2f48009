"""The relay: a program that accepts all connections of sandboxes, and makes those that a policy allows on their behalf.

Each process with sandboxes that have a network runs one. It executes requests from its standard input, a Unix socket
that also passes descriptors, and ends when the other end is closed.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import json
import os
import resource
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tvsnap.model.errors import InfrastructureError
from tvsnap.model.network import Network, is_host_name
from tvsnap.sandboxes.network.addresses import Addresses, stands_for_a_name
from tvsnap.sandboxes.network.attach import IP_RECVORIGDSTADDR, WayOut
from tvsnap.sandboxes.network.dns_questions import NoQuestion, Question
from tvsnap.sandboxes.network.resolver import Resolver
from tvsnap.sandboxes.network.rules import Verdict
from tvsnap.sandboxes.network.settings import NetworkSettings
from tvsnap.sandboxes.network.way import Address, Flow, Way, target_text

LONGEST_MESSAGE = 1 << 18
_IP_PKTINFO = 8
_MOST_DESCRIPTORS = 16
_MOST_CONNECTIONS = 128  # of one sandbox at a time
_MOST_QUESTIONS = 64  # of one sandbox at a time
_LOOKUP_THREADS = 256
_MOST_ADDRESSES = 4096  # of names, for one sandbox
_MOST_FLOWS = 64  # exchanges of UDP packets of one sandbox
_IP_HEADER = 20  # bytes
_PART = 1 << 16
_CONNECT_TIMEOUT = 20.0  # seconds
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Refused(Exception):
    """A request is not allowed, or its target does not exist; the message says which."""


class Relay:
    """The ways out of all sandboxes of one process."""

    def __init__(self, control: socket.socket, addresses: Addresses, settings: NetworkSettings) -> None:
        self._control = control
        self._addresses = addresses
        self._settings = settings
        self._ways: dict[str, Way] = {}
        self._resolver = Resolver(settings)
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Works until the other end of the control socket is closed."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(_LOOKUP_THREADS))
        loop.add_reader(self._control, self._obey)
        await self._ended.wait()

    # Requests of the other end.

    def _obey(self) -> None:
        descriptors: list[int] = []
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, LONGEST_MESSAGE, _MOST_DESCRIPTORS)
            if not message:
                self._ended.set()
                return
            request = json.loads(message)
            if request["do"] == "reset":
                way = self._ways[str(request["id"])]
                way.begin(self._tell_of_reset(way))
                return
            answer = self._do(request, descriptors)
        except Exception as error:  # reported to the other end
            for descriptor in descriptors:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            answer = {"error": f"{type(error).__name__}: {error}"}
        self._tell(answer)

    def _tell(self, answer: Mapping[str, Any]) -> None:
        try:
            self._control.send(json.dumps(answer).encode())
        except OSError:
            self._ended.set()

    def _do(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        id = str(request["id"])
        if request["do"] == "open":
            network = replace(Network.parse(request["network"]), space=str(request["space"]))
            self._open(id, network, descriptors)
            return {}
        way = self._ways[id]
        if request["do"] == "close":
            del self._ways[id]
            self._close(way)
        elif request["do"] in ("tell", "take"):
            count = way.under_way()
            way.note_refused()
            report = {
                "open": count,
                "stirred": way.stirred or count > 0,
                "asked": list(way.targets),
                "refused": list(way.refused),
            }
            way.stirred = count > 0
            if request["do"] == "take":
                way.targets.clear()
                way.refused.clear()
            return report
        return {}

    def _open(self, id: str, network: Network, descriptors: Sequence[int]) -> None:
        way = Way(network, WayOut.of(descriptors))
        for one in (way.out.tcp, way.out.tcp6, way.out.udp, way.out.dns):
            one.setblocking(False)
        self._ways[id] = way
        way.listen(way.out.dns, self._receive_question)
        way.listen(way.out.udp, self._receive_packet)
        for listener in (way.out.tcp, way.out.tcp6):
            way.begin(self._accept(way, listener))

    def _close(self, way: Way) -> None:
        for one in (way.out.dns, way.out.udp):
            asyncio.get_running_loop().remove_reader(one)
        for pause in way.pauses.values():
            pause.cancel()
        for task in list(way.listening):
            task.cancel()
        self._reset(way)
        way.out.close()

    def _reset(self, way: Way) -> dict[asyncio.Task[None], socket.socket]:
        """Begins to end all connections of a sandbox; returns them."""
        for flow in way.flows.values():
            flow.task.cancel()
        way.flows.clear()
        ended = dict(way.open)
        for task, inside in ended.items():
            _reset_at_close(inside)
            task.cancel()
        way.open.clear()
        return ended

    async def _tell_of_reset(self, way: Way) -> None:
        """Ends all connections of a sandbox, and answers once the sandbox has been notified of it."""
        ended = self._reset(way)
        if ended:
            await asyncio.wait(ended)
        for inside in ended.values():
            inside.close()
        self._tell({"reset": len(ended)})

    # Connections.

    async def _accept(self, way: Way, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                inside, _ = await loop.sock_accept(listener)
            except OSError:  # for example, no descriptors are left
                await asyncio.sleep(0.1)
                continue
            pause = way.connecting.take()
            if len(way.open) >= _MOST_CONNECTIONS:
                _reset_at_close(inside)
                inside.close()
                continue
            task = asyncio.ensure_future(self._relay(way, inside))
            way.open[task] = inside
            way.stirred = True
            task.add_done_callback(lambda finished_task: way.open.pop(finished_task, None))
            await asyncio.sleep(pause)

    async def _relay(self, way: Way, inside: socket.socket) -> None:
        """Relays one connection to its target."""
        outside: asyncio.StreamWriter | None = None
        _reset_at_close(inside)  # unless all data is passed on first
        reader, writer = await asyncio.open_connection(sock=inside)
        try:
            address, port, *_ = inside.getsockname()
            far, outside = await self._reach(way, address, port)
            await asyncio.gather(pump(reader, outside), pump(far, writer))
            _close_in_turn(inside)
        except (Refused, OSError, asyncio.TimeoutError):
            pass
        finally:
            writer.transport.abort()
            if outside is not None:
                outside.transport.abort()

    async def _reach(self, way: Way, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connects to the target that an address inside stands for; raises Refused or OSError if that fails."""
        target, places = await self._places(way, address, port)
        for host, its_port, lent in places:
            if lent:
                return await _connect(host, its_port)
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                if self._settings.proxy is None:
                    return await _connect(host, its_port)
                return await _connect_through(self._settings.proxy, host, its_port)
        raise Refused(f"{target} cannot be reached")

    async def _places(
        self, way: Way, address: str, port: int, protocol: str = ""
    ) -> tuple[str, list[tuple[str, int, bool]]]:
        """Returns the target of an address inside, and the hosts and ports to try, each with whether it is the host's.

        Raises Refused if the policy does not allow it.
        """
        name = self._addresses.name_of(way.network.space, address)
        if name is None and stands_for_a_name(address):
            self._refuse(way, address)
            raise Refused(f"{address} stands for no name")
        target = name or address
        allowed = way.network.allows(target)
        way.note(f"{target_text(target, port)}{protocol}", refused=not allowed)
        if not allowed:
            self._refuse(way, address)
            raise Refused(target)
        server = self._settings.server(target)
        if server is not None:
            return target, [(*server, True)]
        if name is None:
            hosts = [address] if self._resolver.reaches(address) else []
        elif self._settings.proxy is not None:
            hosts = [name] if await self._resolver.is_there(name, way.looking) else []
        else:
            hosts = await self._resolver.addresses(name, way.looking)
        return target, [(one, port, False) for one in hosts]

    def _refuse(self, way: Way, address: str) -> None:
        """Makes the kernel refuse packets to an address that stands for no allowed name."""
        with contextlib.suppress(OSError):
            way.out.judge(ipaddress.ip_network(address), Verdict.REFUSED)

    # Packets of UDP.

    def _receive_packet(self, way: Way) -> None:
        with contextlib.suppress(OSError):
            packet, about, _, sender = way.out.udp.recvmsg(_PART, socket.CMSG_SPACE(16))
            addresses = [
                data for level, kind, data in about if (level, kind) == (socket.IPPROTO_IP, IP_RECVORIGDSTADDR)
            ]
            port, number = struct.unpack_from("!H4s", addresses[0], 2)
            key = (sender, (socket.inet_ntoa(number), port))
            flow = way.flows.get(key)
            if flow is None and len(way.flows) < _MOST_FLOWS:
                flow = way.flows[key] = Flow()
                flow.task = asyncio.ensure_future(self._pass_packets(way, key, flow))
                way.stirred = True
            if flow is not None:
                flow.send(packet)
        way.rest(way.out.udp, self._receive_packet, way.sending.take())

    async def _pass_packets(self, way: Way, key: tuple[Address, Address], flow: Flow) -> None:
        """Passes on packets of one exchange until there are none for some seconds."""
        address, port = key[1]
        transport: asyncio.DatagramTransport | None = None
        try:
            _, places = await self._places(way, address, port, "/udp")
            host, its_port, _ = places[0]
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: _Answers(way, key, flow), remote_addr=(host, its_port)
            )
            while (seconds := flow.until - time.monotonic()) > 0:
                with contextlib.suppress(asyncio.TimeoutError):
                    transport.sendto(await asyncio.wait_for(flow.packets.get(), seconds))
        except (Refused, OSError, IndexError):
            pass
        finally:
            if way.flows.get(key) is flow:
                del way.flows[key]
            if transport is not None:
                transport.abort()

    # Names.

    def _receive_question(self, way: Way) -> None:
        with contextlib.suppress(OSError):
            message, about, _, asker = way.out.dns.recvmsg(_PART, socket.CMSG_SPACE(12))
            if way.questions < _MOST_QUESTIONS:
                way.questions += 1
                way.stirred = True
                way.begin(self._answer(way, message, about, asker))
        way.rest(way.out.dns, self._receive_question, way.questioning.take())

    async def _answer(self, way: Way, message: bytes, about: list[Any], asker: Any) -> None:
        try:
            answer = await self._reply(way, Question(message))
            asked_of = [data[8:12] for level, kind, data in about if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO)]
            control = [
                (socket.IPPROTO_IP, _IP_PKTINFO, struct.pack("=i4s4s", 0, one, one)) for one in asked_of
            ]  # answer from the address that was asked
            way.out.dns.sendmsg([answer], control, 0, asker)
        except (NoQuestion, OSError):
            pass  # malformed questions get no answer
        finally:
            way.questions -= 1

    async def _reply(self, way: Way, question: Question) -> bytes:
        if question.wants_name:
            name = self._addresses.name_of(way.network.space, question.address) if question.address else None
            return question.answer_unknown() if name is None else question.answer("PTR", f"{name}.")
        name = question.name
        if not is_host_name(name) or not await self._is_there(way, name):
            return question.answer_unknown()
        if not question.wants_address:
            return question.answer_nothing()
        if name not in way.names and len(way.names) >= _MOST_ADDRESSES:
            return question.answer_failure()
        try:
            address = self._addresses.address_of(way.network.space, name)
        except InfrastructureError:
            return question.answer_failure()
        way.names.add(name)
        return question.answer("A", address)

    async def _is_there(self, way: Way, name: str) -> bool:
        """Whether the policy allows a name, and it resolves to something that may be reached."""
        allowed = way.network.allows(name)
        way.note(name, refused=not allowed)
        return allowed and await self._resolver.is_there(name, way.looking)


class _Answers(asyncio.DatagramProtocol):
    """Sends answers into the sandbox, as from the address that it had sent to."""

    def __init__(self, way: Way, key: tuple[Address, Address], flow: Flow) -> None:
        self._way, self._flow = way, flow
        self._inside, self._outside = key

    def datagram_received(self, data: bytes, _: object) -> None:
        self._flow.stir()
        self._way.stirred = True
        (source, port), (target, its_port) = self._outside, self._inside
        header = struct.pack("!4H", port, its_port, 8 + len(data), 0)
        ends = socket.inet_aton(source) + socket.inet_aton(target)
        length = _IP_HEADER + len(header) + len(data)
        ip = struct.pack("!BBHHHBBH8s", 0x45, 0, length, 0, 0, 64, socket.IPPROTO_UDP, 0, ends)
        with contextlib.suppress(OSError):
            self._way.out.raw.sendto(ip + header + data, (target, 0))


async def _connect(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_TIMEOUT)


async def _connect_through(proxy: str, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to a host through an HTTP proxy."""
    url = urlsplit(proxy)
    assert url.hostname is not None
    reader, writer = await _connect(url.hostname, url.port or 80)
    who, place = "", target_text(host, port)
    if url.username is not None:
        secret = f"{unquote(url.username)}:{unquote(url.password or '')}"
        who = f"Proxy-Authorization: Basic {base64.b64encode(secret.encode()).decode()}\r\n"
    try:
        writer.write(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{who}\r\n".encode())
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


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes on the data of one end until its end, and until the kernel has all of it."""
    writer.transport.set_write_buffer_limits(high=0)  # so that drain leaves nothing in a buffer that would be lost
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
    """Runs the relay; `argv` has the data directory and the settings."""
    home, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    certificates = settings.pop("certificates")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection needs two descriptors
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
