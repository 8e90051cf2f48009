"""The relay: a program that accepts all connections of sandboxes, and makes those that a policy allows on their behalf.

Each process with sandboxes that have a network runs one. It executes requests from its standard input, a Unix socket
over which descriptors are passed too, and ends when the other end is closed.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import resource
import select
import socket
import struct
import sys
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tvsnap.model.errors import InfrastructureError
from tvsnap.model.network import Network, is_host_name
from tvsnap.sandboxes.network.addresses import Addresses, stands_for_a_name
from tvsnap.sandboxes.network.pace import Pace
from tvsnap.sandboxes.network.questions import NoQuestion, Question
from tvsnap.sandboxes.network.resolver import Resolver
from tvsnap.sandboxes.network.settings import NetworkSettings

LONGEST_MESSAGE = 1 << 18
_IP_PKTINFO = 8
_MOST_CONNECTIONS = 128  # of one sandbox at a time
_MOST_QUESTIONS, _MOST_LOOKUPS = 64, 16  # of one sandbox at a time; beyond the second number they wait
_LOOKUP_THREADS = 256
_QUESTIONS_PER_SECOND, _CONNECTIONS_PER_SECOND, _AT_ONCE = 100, 100, 300
_MOST_NAMES = 200  # reported for a call: they fit into one message
_MOST_ADDRESSES = 4096  # of names, for one sandbox
_PART = 1 << 16
_CONNECT_TIMEOUT = 20.0  # seconds
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Refused(Exception):
    """A request is not allowed, or its target does not exist; the message says which."""


@dataclass(eq=False)
class Way:
    """The way out of one sandbox.

    Attributes:
        network: what it may reach.
        tcp, dns, link: see `WayOut`.
        open: the connections that are being relayed, by task.
        asked: the distinct targets that it asked for since the last report.
        refused: those of them that were not allowed.
        stirred: whether anything was, or may have been, under way since the last report.
        known: the names whose addresses it asked for.
        questions: how many DNS questions are being answered.
        looking: limits the name lookups outside.
        questioning, connecting: limit how often it may ask and connect.
        listening: the tasks that answer it.
        pause: resumes answering DNS questions when the rate limit allows.
    """

    network: Network
    tcp: socket.socket
    dns: socket.socket
    link: int
    open: dict[asyncio.Task[None], socket.socket] = field(default_factory=dict)
    asked: dict[str, None] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)
    stirred: bool = True
    known: set[str] = field(default_factory=set)
    questions: int = 0
    looking: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_LOOKUPS))
    questioning: Pace = field(default_factory=lambda: Pace(_QUESTIONS_PER_SECOND, _AT_ONCE))
    connecting: Pace = field(default_factory=lambda: Pace(_CONNECTIONS_PER_SECOND, _AT_ONCE))
    listening: list[asyncio.Task[None]] = field(default_factory=list)
    pause: asyncio.TimerHandle | None = None

    def note(self, what: str, *, refused: bool = False) -> None:
        """Records a target that was asked for."""
        for noted in (self.asked, self.refused) if refused else (self.asked,):
            if len(noted) < _MOST_NAMES:
                noted[what] = None

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts a task, which is cancelled when the way is closed."""
        task = asyncio.ensure_future(work)
        self.listening.append(task)
        task.add_done_callback(self.listening.remove)

    def under_way(self) -> int:
        """Returns how many connections and unanswered questions there are, including those not yet accepted here."""
        waiting = select.poll()
        waiting.register(self.tcp, select.POLLIN)
        waiting.register(self.dns, select.POLLIN)
        return len(self.open) + self.questions + len(waiting.poll(0))


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
            message, descriptors, _, _ = socket.recv_fds(self._control, LONGEST_MESSAGE, 8)
            if not message:
                self._ended.set()
                return
            asked = json.loads(message)
            if asked["do"] == "reset":
                way = self._ways[str(asked["id"])]
                way.begin(self._tell_of_reset(way))
                return
            answer = self._do(asked, descriptors)
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

    def _do(self, asked: Mapping[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        id = str(asked["id"])
        if asked["do"] == "open":
            network = replace(Network.parse(asked["network"]), space=str(asked["space"]))
            self._open(id, network, descriptors)
            return {}
        way = self._ways[id]
        if asked["do"] == "close":
            del self._ways[id]
            self._close(way)
        elif asked["do"] in ("tell", "take"):
            count = way.under_way()
            told = {
                "open": count,
                "stirred": way.stirred or count > 0,
                "asked": list(way.asked),
                "refused": list(way.refused),
            }
            way.stirred = count > 0
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
        self._listen_for_questions(way)
        way.begin(self._accept(way))

    def _close(self, way: Way) -> None:
        asyncio.get_running_loop().remove_reader(way.dns)
        if way.pause is not None:
            way.pause.cancel()
        for task in list(way.listening):
            task.cancel()
        self._reset(way)
        way.tcp.close()
        way.dns.close()
        os.close(way.link)

    def _reset(self, way: Way) -> dict[asyncio.Task[None], socket.socket]:
        """Begins to end all connections of a sandbox; returns them."""
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

    async def _accept(self, way: Way) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                inside, _ = await loop.sock_accept(way.tcp)
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
            task.add_done_callback(lambda done: way.open.pop(done, None))
            await asyncio.sleep(pause)

    async def _relay(self, way: Way, inside: socket.socket) -> None:
        """Relays one connection to its target."""
        outside: asyncio.StreamWriter | None = None
        _reset_at_close(inside)  # unless all data is passed on first
        reader, writer = await asyncio.open_connection(sock=inside)
        try:
            address, port = inside.getsockname()
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
        name = self._addresses.name_of(way.network.space, address)
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
        if name is None:
            found = [address] if self._resolver.reaches(address) else []
        elif self._settings.proxy is not None:
            found = [name] if await self._resolver.is_there(name, way.looking) else []
        else:
            found = await self._resolver.addresses(name, way.looking)
        for one in found:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                if self._settings.proxy is None:
                    return await _connect(one, port)
                return await _connect_through(self._settings.proxy, one, port)
        raise Refused(f"{target} cannot be reached")

    # Names.

    def _listen_for_questions(self, way: Way) -> None:
        way.pause = None
        asyncio.get_running_loop().add_reader(way.dns, self._receive_question, way)

    def _receive_question(self, way: Way) -> None:
        with contextlib.suppress(OSError):
            message, about, _, asker = way.dns.recvmsg(_PART, socket.CMSG_SPACE(12))
            if way.questions < _MOST_QUESTIONS:
                way.questions += 1
                way.stirred = True
                way.begin(self._answer(way, message, about, asker))
        pause = way.questioning.take()
        if pause:
            loop = asyncio.get_running_loop()
            loop.remove_reader(way.dns)
            way.pause = loop.call_later(pause, self._listen_for_questions, way)

    async def _answer(self, way: Way, message: bytes, about: list[Any], asker: Any) -> None:
        try:
            answer = await self._reply(way, Question(message))
            asked_of = [data[8:12] for level, kind, data in about if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO)]
            control = [
                (socket.IPPROTO_IP, _IP_PKTINFO, struct.pack("=i4s4s", 0, one, one)) for one in asked_of
            ]  # answer from the address that was asked
            way.dns.sendmsg([answer], control, 0, asker)
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
        if name not in way.known and len(way.known) >= _MOST_ADDRESSES:
            return question.answer_failure()
        try:
            address = self._addresses.address_of(way.network.space, name)
        except InfrastructureError:
            return question.answer_failure()
        way.known.add(name)
        return question.answer("A", address)

    async def _is_there(self, way: Way, name: str) -> bool:
        """Whether the policy allows a name, and it resolves to something that may be reached."""
        allowed = way.network.allows(name)
        way.note(name, refused=not allowed)
        return allowed and await self._resolver.is_there(name, way.looking)


async def _connect(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_TIMEOUT)


async def _connect_through(proxy: str, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to a host through an HTTP proxy."""
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
