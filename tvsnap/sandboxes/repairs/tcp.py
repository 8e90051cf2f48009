"""Saves TCP connections within a sandbox when a snapshot is taken; `tcp_ends.py` recreates them in forks.

Both ends of a connection are in the sandbox, so packets in flight need not be restored: two sockets become its ends,
with the unread data of each, and data that one has sent and the other had no room for is sent again. The rest, such as
that one end was closed, is repeated by the same operations. CRIU leaves connected sockets alone in a dump, and restores
them with their options, but unconnected.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import select
import socket
import struct
import termios
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvsnap.host.attempts import AttemptFailed
from tvsnap.model.errors import NotCheckpointable
from tvsnap.sandboxes.kernel.borrowing import borrowed
from tvsnap.sandboxes.kernel.namespaces import in_network_of
from tvsnap.sandboxes.kernel.procfs import describe, inner_pid, sockets
from tvsnap.sandboxes.looks import connections
from tvsnap.sandboxes.looks.connections import (
    CLOSE_WAIT,
    CLOSING,
    ESTABLISHED,
    FIN_WAIT_1,
    FIN_WAIT_2,
    LAST_ACK,
    TIME_WAIT,
    Connection,
)
from tvsnap.sandboxes.repairs import tcp_repair
from tvsnap.sandboxes.repairs.noted_file import NotedFile

_MOST = 1000
_MOST_DATA = 64 << 20
"""Connections, and bytes queued in them; with more a state has no snapshot."""
_KNOWN = (ESTABLISHED, FIN_WAIT_1, FIN_WAIT_2, CLOSE_WAIT, LAST_ACK, CLOSING)
_HAS_CLOSED = (FIN_WAIT_1, FIN_WAIT_2, LAST_ACK, CLOSING)
_OUTPUT = 0x5411  # SIOCOUTQ, SIOCINQ is FIONREAD
WINDOW_CLAMP = 10  # TCP_WINDOW_CLAMP
_Address = tuple[str, int]
_USUAL = tcp_repair.Terms()


@dataclass(frozen=True, slots=True)
class End:
    """One end of a connection.

    Attributes:
        family: of its socket.
        address, peer: address and port of this end and of the other, as seen by this end.
        holder: a process that has it open, by its id in the sandbox, and the descriptor; None if no process has it,
            because it waits to be accepted, or was closed.
        closed: it will send nothing more.
        deaf: its program will read nothing more (SHUT_RD).
        left: seconds for which it keeps its port after it was closed; 0 if it does not.
        terms: its negotiated options.
        timestamp: the timestamp clock of its segments.
        window: TCP_WINDOW_CLAMP, bytes; other options are saved as those of all sockets are (`socket_options.py`).
        reuse, reuse_port: SO_REUSEADDR, SO_REUSEPORT.
        unread: data that waits to be read, in base64.
        unsent: data that waits for room at the other end, in base64.
    """

    family: int
    address: _Address
    peer: _Address
    holder: tuple[int, int] | None = None
    closed: bool = False
    deaf: bool = False
    left: float = 0.0
    terms: tcp_repair.Terms = _USUAL
    timestamp: int = 0
    window: int = 0
    reuse: bool = False
    reuse_port: bool = False
    unread: str = ""
    unsent: str = ""

    @classmethod
    def from_json(cls, about: Mapping[str, Any]) -> End:
        """Raises KeyError, TypeError or ValueError if `about` is no end."""
        holder = about["holder"]
        return cls(
            **{
                **about,
                "address": tuple(about["address"]),
                "peer": tuple(about["peer"]),
                "holder": holder and tuple(holder),
                "terms": tcp_repair.Terms(**about["terms"]),
            }
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """A connection.

    Attributes:
        first, second: its ends.
        gone: the second end is gone; then it is recreated only temporarily, and held by no process.
        queue: the number of connections at the second end that wait to be accepted before it; -1 if it does not wait.
    """

    first: End
    second: End
    gone: bool = False
    queue: int = -1

    @classmethod
    def from_json(cls, about: Mapping[str, Any]) -> Kept:
        """Raises KeyError, TypeError or ValueError if `about` is no connection."""
        return cls(
            **{**about, "first": End.from_json(about["first"]), "second": End.from_json(about["second"])},
        )


FILE = NotedFile("tvsnap-tcp.json", Kept.from_json)
"""The file of the results of `note`, beside the images of a snapshot."""


def note(
    present: Callable[[], list[Connection]], init: int, pids: Collection[int]
) -> tuple[list[Kept], list[Connection]]:
    """Returns the connections of a sandbox that are to be recreated, and those in TIME_WAIT.

    None of its processes `pids` runs meanwhile. Raises NotCheckpointable if one cannot be recreated, and AttemptFailed
    if they change, or cannot be inspected.

    Args:
        present: returns all its connections.
        init: its PID 1, as the host sees it.
        pids: its processes.
    """
    most = NotCheckpointable(f"a process has, with others, TCP connections with more than {_MOST} ends")
    try:
        all_of_them = present()
        open_ones = [one for one in all_of_them if one.state != TIME_WAIT]
        if len(open_ones) > _MOST:
            raise most
        pairs = in_network_of(init, _Notes(open_ones, pids).take) if open_ones else []
    except connections.TooMany:
        raise most from None
    except OSError as error:
        reason = f"the TCP connections of a sandbox could not be looked at: {error.strerror}"
        raise AttemptFailed(reason, machine=True) from None
    return pairs, [one for one in all_of_them if one.state == TIME_WAIT]


@dataclass(frozen=True, slots=True)
class _Socket:
    """A socket that a process has open."""

    pid: int
    number: int
    sock: socket.socket

    def __str__(self) -> str:
        return f"{describe(self.pid)} has a TCP connection (descriptor {self.number})"


class _Notes:
    """Notes the connections of the sandbox with this thread's network namespace."""

    def __init__(self, present: list[Connection], pids: Iterable[int]) -> None:
        self._holders = _holders({one.inode for one in present}, pids)
        # If one leads out of the sandbox, an end that is outside or that no process has hinders nobody.
        present = [one for one in present if one.inode in self._holders or not one.leads_out]
        self._by_ends = {(one.near, one.far): one for one in present}
        self._sockets: dict[int, _Socket] = {}
        self._room = _MOST_DATA

    def take(self) -> list[Kept]:
        pairs: list[Kept] = []
        waiting: list[tuple[Connection, Kept]] = []
        rest = dict(self._by_ends)
        with contextlib.ExitStack() as stack:
            for one in rest.values():
                if one.inode:
                    self._open(one, stack)
            while rest:
                _, one = rest.popitem()
                other = rest.pop((one.far, one.near), None)
                if one.near == one.far:
                    raise NotCheckpointable(f"{self._name(one)} to itself")
                if other is not None and not one.inode and (other.inode or other.state == FIN_WAIT_2):
                    one, other = other, one
                self._refuse(one)
                if other is not None:
                    self._refuse(other)
                pair = self._keep(one, other)
                if other is not None and not other.inode and other.state in (ESTABLISHED, CLOSE_WAIT):
                    waiting.append((other, pair))
                else:
                    pairs.append(pair)
            return pairs + _in_order(waiting)

    def _open(self, one: Connection, stack: contextlib.ExitStack) -> None:
        if one.inode not in self._holders:
            raise NotCheckpointable(f"{one}, and no process of the sandbox is known to have it open")
        pid, number = self._holders[one.inode]
        descriptor = stack.enter_context(borrowed(pid, number))
        self._sockets[one.inode] = _Socket(pid, number, stack.enter_context(tcp_repair.duplicate(descriptor)))

    def _name(self, one: Connection) -> str:
        """Returns a name of a connection for a sentence: by the process that has it, or its other end, open."""
        for end in (one, self._by_ends.get((one.far, one.near))):
            if end is not None and end.inode:
                return str(self._sockets[end.inode])
        return f"a process had TCP port {one.near[1]} in a connection"

    def _refuse(self, one: Connection) -> None:
        """Raises NotCheckpointable if a connection cannot be recreated, AttemptFailed if it cannot at present."""
        if one.leads_out:
            raise NotCheckpointable(f"{self._name(one)} out of the sandbox, which no snapshot holds")
        if one.state not in _KNOWN:
            raise NotCheckpointable(f"{self._name(one)} that is being made")
        if one.inode or (one.state == FIN_WAIT_2 and one.is_counted_down):
            return
        if one.state not in (ESTABLISHED, CLOSE_WAIT):
            # It is in this state until the other end has acknowledged all data, which may lack room for it.
            reason = f"{self._name(one)} whose other end was closed with data on its way"
            raise AttemptFailed(reason, kind="TCP closed with data on its way")
        if (one.far, one.near) not in self._by_ends:
            raise NotCheckpointable(f"{self._name(one)} that is not accepted yet, and whose other end is gone")
        if one.unread > (one.state == CLOSE_WAIT):  # its closing counts as one byte
            raise NotCheckpointable(f"{self._name(one)} that is not accepted yet, with data in it")

    def _keep(self, one: Connection, other: Connection | None) -> Kept:
        first = self._end(one) if one.inode else self._unheld(one)
        if other is None:
            if not one.inode:
                raise NotCheckpointable(f"{self._name(one)} whose other end is gone")
            closed = one.state in (CLOSE_WAIT, LAST_ACK, CLOSING)
            return Kept(first, End(one.family, one.remote, one.local, closed=closed, terms=first.terms), gone=True)
        second = self._end(other) if other.inode else self._unheld(other, first.terms)
        unsent, back = self._under_way(one, other), self._under_way(other, one)
        return Kept(replace(first, unsent=unsent), replace(second, unsent=back))

    def _end(self, one: Connection) -> End:
        holding = self._sockets[one.inode]
        sock = holding.sock
        urgent = select.poll()
        urgent.register(sock, select.POLLPRI | select.POLLRDHUP)
        events = dict(urgent.poll(0)).get(sock.fileno(), 0)
        if events & select.POLLPRI:
            raise NotCheckpointable(f"{holding} with urgent data")
        return End(
            one.family,
            one.local,
            one.remote,
            (inner_pid(holding.pid), holding.number),
            closed=one.state in _HAS_CLOSED,
            deaf=bool(events & select.POLLRDHUP) and one.state in (ESTABLISHED, FIN_WAIT_1, FIN_WAIT_2),
            terms=tcp_repair.Terms.of(sock),
            timestamp=tcp_repair.timestamp(sock),
            window=sock.getsockopt(socket.IPPROTO_TCP, WINDOW_CLAMP),
            reuse=bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)),
            reuse_port=bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)),
            unread=self._data(_unread(sock)),
        )

    @staticmethod
    def _unheld(one: Connection, terms: tcp_repair.Terms = _USUAL) -> End:
        closed = one.state == FIN_WAIT_2
        return End(
            one.family, one.local, one.remote, closed=closed, left=one.seconds_left if closed else 0.0, terms=terms
        )

    def _under_way(self, one: Connection, other: Connection) -> str:
        """Returns, in base64, the data that one end has sent and the other has not received."""
        if not one.inode or not (size := _amount(self._sockets[one.inode].sock, _OUTPUT)):
            return ""
        if not other.inode:
            raise NotCheckpointable(f"{self._name(one)} with data on its way to where nobody takes it")
        sender, receiver = self._sockets[one.inode].sock, self._sockets[other.inode].sock
        if size > self._room:
            raise NotCheckpointable(f"more than {_MOST_DATA >> 20} MiB wait in TCP connections")
        with _repaired(sender), _repaired(receiver):
            data = tcp_repair.unacknowledged(sender, size + 1)
            closing = size - len(data)  # the FIN counts as one byte
            missing = tcp_repair.next_number(sender, tcp_repair.SENDING)
            missing -= tcp_repair.next_number(receiver, tcp_repair.RECEIVING)
        missing &= 0xFFFFFFFF
        missing = max(0, missing - closing)
        if closing not in (0, 1) or missing > len(data):
            raise AttemptFailed(f"{self._name(one)} in which data is under way", kind="TCP data under way")
        return self._data(data[len(data) - missing :])

    def _data(self, data: bytes) -> str:
        self._room -= len(data)
        if self._room < 0:
            raise NotCheckpointable(f"more than {_MOST_DATA >> 20} MiB wait in TCP connections")
        return base64.b64encode(data).decode()


def _in_order(waiting: list[tuple[Connection, Kept]]) -> list[Kept]:
    """Returns connections in the order in which they wait to be accepted, each with its number in the queue."""
    for port in {one.near[1] for one, _ in waiting}:
        if sum(one.near[1] == port for one in connections.listening()) != 1:
            raise NotCheckpointable(
                f"TCP port {port} has connections to be accepted, by which of some sockets is not known"
            )
    ages = connections.ages() if len(waiting) > 1 else {}
    waiting = sorted(waiting, key=lambda one: -ages.get(one[0].cookie, 0))
    for (before, _), (after, _) in itertools.pairwise(waiting):
        if before.near[1] == after.near[1] and ages.get(before.cookie) == ages.get(after.cookie):
            raise NotCheckpointable(
                f"TCP port {after.near[1]} has connections to be accepted that came at once, in no known order"
            )
    return [replace(pair, queue=index) for index, (_, pair) in enumerate(waiting)]


def _holders(inodes: set[int], pids: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Returns a process and descriptor for each socket, by the socket's inode."""
    holders: dict[int, tuple[int, int]] = {}
    for inode, pid, number in sockets(pids):
        if inode in inodes:
            holders.setdefault(inode, (pid, number))
    return holders


@contextlib.contextmanager
def _repaired(sock: socket.socket) -> Any:
    """Puts a socket in use into repair mode temporarily, without the other end noticing."""
    reuse = sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    tcp_repair.begin(sock)
    try:
        yield
    finally:
        tcp_repair.end(sock, silently=True)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)


def _amount(sock: socket.socket, request: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(sock, request, bytes(4)))[0])


def _unread(sock: socket.socket) -> bytes:
    """Returns a socket's unread data without removing it."""
    size = _amount(sock, termios.FIONREAD)
    data = sock.recv(min(size, _MOST_DATA) + 1, socket.MSG_PEEK | socket.MSG_DONTWAIT) if size else b""
    if len(data) != size and size <= _MOST_DATA:
        raise AttemptFailed("a TCP connection of the sandbox changes while it is looked at")
    return data
