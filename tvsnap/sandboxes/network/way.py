"""The way out of one sandbox at the relay: its sockets, connections, rate limits, and records of targets."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tvsnap.model.network import Network
from tvsnap.sandboxes.network.attach import WayOut
from tvsnap.sandboxes.network.pace import Pace

Address = tuple[str, int]
_MOST_LOOKUPS = 16  # at a time; further ones wait
_QUESTIONS_PER_SECOND, _CONNECTIONS_PER_SECOND, _AT_ONCE = 100, 100, 300
_MOST_TARGETS = 200  # reported for a call: they fit into one message
_MOST_WAITING = 64  # unsent packets of one exchange
_PACKETS_PER_SECOND = 5000
_FLOW_TIMEOUT = 5.0  # seconds


class Flow:
    """An exchange of UDP packets between an address inside and one outside.

    Attributes:
        packets: those that are to be sent.
        until: its end, by time.monotonic(), if nothing is sent either way until then.
        task: passes them on.
    """

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.packets: asyncio.Queue[bytes] = asyncio.Queue(_MOST_WAITING)
        self.until = time.monotonic() + _FLOW_TIMEOUT

    def stir(self) -> None:
        """Records that a packet went one way or the other."""
        self.until = time.monotonic() + _FLOW_TIMEOUT

    def send(self, packet: bytes) -> None:
        """Takes a packet from inside; it is lost if too many wait."""
        self.stir()
        with contextlib.suppress(asyncio.QueueFull):
            self.packets.put_nowait(packet)


@dataclass(eq=False)
class Way:
    """The way out of one sandbox.

    Attributes:
        network: the policy.
        out: its descriptors.
        flows: exchanges of UDP packets, by the address inside and the one that packets were sent to.
        open: the connections that are being relayed, by task.
        targets: the distinct targets that it asked for since the last report.
        refused: those of them that were not allowed.
        stirred: whether a connection or question was, or may have been, open since the last report.
        names: those of which it asked for the address.
        questions: the number of DNS questions being answered.
        looking: limits the name lookups outside.
        questioning, connecting, sending: limit the rates of questions, connections and UDP packets.
        listening: the tasks that answer it.
        pauses: resume reading from sockets when the rate limits allow, by socket.
    """

    network: Network
    out: WayOut
    flows: dict[tuple[Address, Address], Flow] = field(default_factory=dict)
    open: dict[asyncio.Task[None], socket.socket] = field(default_factory=dict)
    targets: dict[str, None] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)
    stirred: bool = True
    names: set[str] = field(default_factory=set)
    questions: int = 0
    looking: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_LOOKUPS))
    questioning: Pace = field(default_factory=lambda: Pace(_QUESTIONS_PER_SECOND, _AT_ONCE))
    connecting: Pace = field(default_factory=lambda: Pace(_CONNECTIONS_PER_SECOND, _AT_ONCE))
    sending: Pace = field(default_factory=lambda: Pace(_PACKETS_PER_SECOND, _PACKETS_PER_SECOND))
    listening: list[asyncio.Task[None]] = field(default_factory=list)
    pauses: dict[socket.socket, asyncio.TimerHandle] = field(default_factory=dict)

    def note(self, what: str, *, refused: bool = False) -> None:
        """Records a target that was asked for."""
        for noted in (self.targets, self.refused) if refused else (self.targets,):
            if len(noted) < _MOST_TARGETS:
                noted[what] = None

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts a task, which is cancelled when the way is closed."""
        task = asyncio.ensure_future(work)
        self.listening.append(task)
        task.add_done_callback(self.listening.remove)

    def under_way(self) -> int:
        """Returns the number of connections and unanswered questions, including those not yet accepted here."""
        waiting = select.poll()
        for one in (self.out.tcp, self.out.tcp6, self.out.udp, self.out.dns):
            waiting.register(one, select.POLLIN)
        return len(self.open) + len(self.flows) + self.questions + len(waiting.poll(0))

    def listen(self, one: socket.socket, receive: Callable[[Way], None]) -> None:
        """Calls a function whenever there is something to read at a socket."""
        self.pauses.pop(one, None)
        asyncio.get_running_loop().add_reader(one, receive, self)

    def rest(self, one: socket.socket, receive: Callable[[Way], None], seconds: float) -> None:
        """Does not read from a socket for some time; 0 does nothing."""
        if seconds:
            loop = asyncio.get_running_loop()
            loop.remove_reader(one)
            self.pauses[one] = loop.call_later(seconds, self.listen, one, receive)

    def note_refused(self) -> None:
        """Records the connections that the kernel has refused."""
        for address, port, protocol in self.out.take_refused():
            self.note(f"{target_text(address, port)}{'/udp' * (protocol == socket.IPPROTO_UDP)}", refused=True)


def target_text(host: str, port: int) -> str:
    """Returns host and port as text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
