"""Lists a sandbox's TCP connections, including those that end by themselves, such as ports in TIME_WAIT.

The kernel has one table of connections for the whole machine, and searching it for one sandbox takes a millisecond. So
first the kernel's counters are read, and the listening sockets, which it keeps in another table.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import math
import re
import socket
import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from tvsnap.model.network import OWN_ADDRESS
from tvsnap.sandboxes.kernel.namespaces import in_network_of
from tvsnap.sandboxes.kernel.procfs import read

ESTABLISHED, FIN_WAIT_1, FIN_WAIT_2, TIME_WAIT, CLOSE_WAIT, LAST_ACK, LISTEN, CLOSING = 1, 4, 5, 6, 8, 9, 10, 11
_LASTING = (ESTABLISHED, CLOSE_WAIT, LISTEN)
"""States that only the processes of the two ends can end."""
_LASTING_WHILE_HELD = (FIN_WAIT_1, LAST_ACK)
"""The same if a process has the socket: it waits until the other one makes room."""
_NAMES = {2: "SYN_SENT", 3: "SYN_RECV", 4: "FIN_WAIT1", 5: "FIN_WAIT2", 6: "TIME_WAIT", 9: "LAST_ACK", 11: "CLOSING"}
_ALL_BUT_LISTEN = 0xFFF & ~(1 << LISTEN)
_NO_TIMER, _LAST_WAIT = 0, 3
_MOST = 2000
_COUNTS = re.compile(rb"^TCP6?: inuse (\d+)(?: orphan \d+ tw (\d+))?", re.MULTILINE)
"""Orphans are those of the whole machine; the namespace's own are in use, too."""
_DIAGNOSIS, _BY_FAMILY, _TCP_OF_ANY_FAMILY, _DUMP, _DONE, _ERROR = 4, 20, 18, 0x301, 3, 2
_DESTROY, _REQUEST_AND_ANSWER = 21, 5
_HEADER, _QUERY, _OLD_QUERY = struct.Struct("=IHHII"), struct.Struct("=BBBBI48s"), struct.Struct("=BBBB48sII")
_WITH_INFO, _INFO, _ATTRIBUTE, _LAST_SENT = 1 << 1, 2, struct.Struct("=HH"), struct.Struct("=44xI")
_ANSWER = struct.Struct("=BBBB2s2s16s16sIQIIIII")


@dataclass(frozen=True, slots=True)
class Connection:
    """An entry of the kernel's table.

    Attributes:
        family: AF_INET or AF_INET6.
        local, remote: addresses and ports of its ends.
        state: the kernel's number for it.
        seconds_left: seconds for which it keeps its port; infinite if it does not end by itself, 0 if unknown.
        inode: of its socket; 0 if no process has it any more.
        cookie: the kernel's permanent number for the connection.
        name: the key by which the kernel finds it (struct inet_diag_sockid).
        unread: bytes that wait to be read.
        is_counted_down: only a timer is left of it, which expires in `seconds_left`.
    """

    family: int
    local: tuple[str, int]
    remote: tuple[str, int]
    state: int
    seconds_left: float
    inode: int
    cookie: int
    name: bytes
    unread: int = 0
    is_counted_down: bool = False

    @property
    def near(self) -> tuple[str, int]:
        """Its own address in the form of the other end: an IPv4-mapped IPv6 address is converted to IPv4."""
        return _plain(self.local)

    @property
    def far(self) -> tuple[str, int]:
        """The address of its other end, likewise."""
        return _plain(self.remote)

    @property
    def leads_out(self) -> bool:
        """Whether one of its ends is outside the sandbox; the remains of such a connection hinder nobody."""
        return not (_is_inside(self.local[0]) and _is_inside(self.remote[0]))

    @property
    def ends(self) -> str:
        """Both ends as text, which is unique among the sandbox's connections."""
        return f"{self.local[0]}:{self.local[1]}-{self.remote[0]}:{self.remote[1]}"

    def __str__(self) -> str:
        return f"TCP port {self.local[1]} is in {_NAMES.get(self.state, f'state {self.state}')}"


class TooMany(OSError):
    """There are more connections than the limit."""


def present(init: int) -> list[Connection]:
    """Returns all TCP connections in a sandbox; see `connections`. Raises TooMany or OSError if that is impossible."""
    statistics = b""
    for name in ("sockstat", "sockstat6"):
        with contextlib.suppress(FileNotFoundError):  # there may be no IPv6 on this machine
            statistics += read(f"/proc/{init}/net/{name}")
    if not may_pass(statistics, lambda: len(in_network_of(init, listening))):
        return []
    return in_network_of(init, connections)


def may_pass(statistics: bytes, count_listening: Callable[[], int] = lambda: 0) -> bool:
    """Whether there may be any connections, given the contents of /proc/net/sockstat and sockstat6.

    `count_listening` returns the number of listening sockets.
    """
    counts = _COUNTS.findall(statistics)
    if not counts:
        return True  # the kernel does not show it
    if any(int(waiting or 0) for _, waiting in counts):
        return True
    used = sum(int(count) for count, _ in counts)
    return used > 0 and used != count_listening()


def listening() -> list[Connection]:
    """Returns the TCP sockets that listen in this thread's network namespace."""
    sockets = []
    for family in (socket.AF_INET, socket.AF_INET6):
        sockets += _ask(_BY_FAMILY, _QUERY.pack(family, socket.IPPROTO_TCP, 0, 0, 1 << LISTEN, bytes(48)))
    return sockets


def connections() -> list[Connection]:
    """Returns all TCP connections in this thread's network namespace, without listening sockets.

    Raises TooMany or OSError if that is impossible.
    """
    query = _OLD_QUERY.pack(socket.AF_UNSPEC, 0, 0, 0, bytes(48), _ALL_BUT_LISTEN, 0)
    return _ask(_TCP_OF_ANY_FAMILY, query)


def ages() -> dict[int, int]:
    """Returns, by cookie, how many ms ago each connection in this thread's network namespace last sent anything.

    For a connection that waits to be accepted, this is its age.
    """
    query = _OLD_QUERY.pack(socket.AF_UNSPEC, 0, 0, _WITH_INFO, bytes(48), _ALL_BUT_LISTEN, 0)
    by_cookie: dict[int, int] = {}
    for body in _answers(_TCP_OF_ANY_FAMILY, query):
        attributes = body[_ANSWER.size :]
        while len(attributes) >= _ATTRIBUTE.size:
            length, kind = _ATTRIBUTE.unpack_from(attributes)
            if kind == _INFO and length >= _ATTRIBUTE.size + _LAST_SENT.size:
                by_cookie[_connection(body).cookie] = int(_LAST_SENT.unpack_from(attributes, _ATTRIBUTE.size)[0])
            attributes = attributes[max(length, _ATTRIBUTE.size) + 3 & ~3 :]
    return by_cookie


def _plain(address: tuple[str, int]) -> tuple[str, int]:
    ip = ipaddress.ip_address(address[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (str(mapped) if mapped else address[0]), address[1]


def _is_inside(address: str) -> bool:
    ip = ipaddress.ip_address(_plain((address, 0))[0])
    return ip.is_loopback or ip.is_unspecified or str(ip) == OWN_ADDRESS


def can_end() -> bool:
    """Whether this kernel can end connections prematurely."""
    return _end(_QUERY.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0, bytes(48))) != errno.EOPNOTSUPP


def end(cookies: Collection[int]) -> None:
    """Ends the connections of this thread's network namespace with these cookies; some may be gone."""
    for one in connections():
        if one.cookie in cookies:
            _end(_QUERY.pack(one.family, socket.IPPROTO_TCP, 0, 0, 0xFFF, one.name))


def _end(query: bytes) -> int:
    """Asks the kernel to end a connection; returns the error number."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _DIAGNOSIS) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(query), _DESTROY, _REQUEST_AND_ANSWER, 1, 0) + query)
        ((_, body),) = _messages(kernel.recv(1 << 16))
        return -int(struct.unpack_from("=i", body)[0])


def _ask(kind: int, query: bytes) -> list[Connection]:
    return [_connection(body) for body in _answers(kind, query)]


def _answers(kind: int, query: bytes) -> list[bytes]:
    bodies: list[bytes] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _DIAGNOSIS) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(query), kind, _DUMP, 1, 0) + query)
        while len(bodies) <= _MOST:
            for answer, body in _messages(kernel.recv(1 << 16)):
                if answer == _DONE:
                    return bodies
                if answer == _ERROR:
                    raise OSError("the kernel does not tell of its connections")
                bodies.append(body)
    raise TooMany("too many connections to look at")


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(data)
        yield kind, data[_HEADER.size : length]
        data = data[length + 3 & ~3 :]


def _connection(body: bytes) -> Connection:
    family, state, timer, _, port, peer_port, address, peer, _, cookie, expires, unread, _, _, inode = (
        _ANSWER.unpack_from(body)
    )
    if state in _LASTING or (state == FIN_WAIT_2 and timer == _NO_TIMER) or (inode and state in _LASTING_WHILE_HELD):
        seconds_left = math.inf
    else:
        seconds_left = expires / 1000 if timer == _LAST_WAIT else 0.0
    local, remote = _address(family, address, port), _address(family, peer, peer_port)
    return Connection(
        family,
        local,
        remote,
        state,
        seconds_left,
        inode,
        cookie,
        body[4:52],
        unread,
        is_counted_down=timer == _LAST_WAIT,
    )


def _address(family: int, address: bytes, port: bytes) -> tuple[str, int]:
    data = address[:4] if family == socket.AF_INET else address
    return str(ipaddress.ip_address(data)), int.from_bytes(port, "big")
