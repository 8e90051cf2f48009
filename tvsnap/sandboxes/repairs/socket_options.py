"""Options of sockets in forks: which ones CRIU restores, which are noted and set again here, and which are refused.

`OPTIONS` lists the options that can be set and read again, by socket(7), ip(7), ipv6(7), tcp(7), udp(7), unix(7),
netlink(7) and the kernel's headers. A test sets each of them. Read-only options such as SO_TYPE are not listed, nor are
those that the kernel changes by itself, such as TCP_QUICKACK.

These are lost because they can be set but not read: the key of TCP_MD5SIG, SO_ATTACH_REUSEPORT_CBPF, SO_INQ, IPV6_MTU,
IPV6_NEXTHOP, IPV6_PKTINFO, and the interface of IP_MULTICAST_IF if it was chosen by number. Also lost are IPV6_CHECKSUM
of a raw socket, because its default depends on the protocol, and options of a socket in a message to a process.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tvsnap.host.attempts import AttemptFailed
from tvsnap.sandboxes.kernel.borrowing import borrowed
from tvsnap.sandboxes.kernel.procfs import inner_pid, insiders
from tvsnap.sandboxes.repairs import tcp_repair
from tvsnap.sandboxes.repairs.noted_file import NotedFile

_NETLINK = 270
_INTERNET = (socket.AF_INET, socket.AF_INET6)

Fate = Literal["criu", "noted", "refused"]
Kind = Literal["tcp", "udp", "raw", "unix", "netlink"]


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a socket.

    Attributes:
        name: as in its manual page.
        level, number: as for getsockopt(2).
        usual: its default value.
        fate: how another value is handled: "criu" restores it, it is "noted" here and set again, or the state has no
            snapshot ("refused").
        kinds: the kinds of sockets that have it; empty for all to which the level applies.
        families: their address families; empty for all.
        unconnected: whether a connected TCP socket has it from its connection instead (see `tcp.py`).
        size: bytes of the longest value.
    """

    name: str
    level: int
    number: int
    usual: bytes
    fate: Fate
    kinds: tuple[Kind, ...] = ()
    families: tuple[int, ...] = ()
    unconnected: bool = False
    size: int = 4

    def applies(self, kind: Kind, family: int, *, connected: bool) -> bool:
        """Whether a socket may have this option, judged without asking the kernel."""
        return (
            (not self.kinds or kind in self.kinds)
            and (not self.families or family in self.families)
            and not (self.unconnected and connected and kind == "tcp")
        )

    def value(self, sock: socket.socket) -> bytes | None:
        """Returns the option's value of a socket; None if the socket lacks the option."""
        with contextlib.suppress(OSError):
            return sock.getsockopt(self.level, self.number, self.size)
        return None


def _number(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def _of(level: int, fate: Fate, *numbers: Mapping[str, int | tuple[int, int]], **about: Any) -> Iterator[Option]:
    """Yields options with the same `fate`; a number alone means that the default is 0."""
    for name, one in itertools.chain.from_iterable(some.items() for some in numbers):
        number, usual = one if isinstance(one, tuple) else (one, 0)
        yield Option(name, level, number, _number(usual), fate, **about)


_DATAGRAMS: dict[str, tuple[Kind, ...]] = {"kinds": ("udp", "raw")}
_STREAMS: dict[str, tuple[Kind, ...]] = {"kinds": ("tcp",)}
_UNIX: dict[str, tuple[Kind, ...]] = {"kinds": ("unix",)}
_INTERNETS = {"families": _INTERNET}
_IPV4, _IPV6 = {"families": (socket.AF_INET,)}, {"families": (socket.AF_INET6,)}

OPTIONS: tuple[Option, ...] = (
    # Any socket.
    *_of(
        socket.SOL_SOCKET,
        "criu",
        {"SO_DONTROUTE": 5, "SO_BROADCAST": 6, "SO_KEEPALIVE": 9, "SO_OOBINLINE": 10},
        {"SO_NO_CHECK": 11, "SO_PRIORITY": 12, "SO_PASSCRED": 16, "SO_RCVLOWAT": (18, 1)},
        {"SO_PASSSEC": 34, "SO_MARK": 36, "SO_BINDTOIFINDEX": 62},
    ),
    *_of(socket.SOL_SOCKET, "criu", {"SO_REUSEADDR": 2, "SO_REUSEPORT": 15}, **_INTERNETS),
    *_of(socket.SOL_SOCKET, "noted", {"SO_REUSEADDR": 2, "SO_REUSEPORT": 15}, kinds=("unix", "netlink")),
    *_of(socket.SOL_SOCKET, "criu", {"SO_SNDBUF": 7, "SO_RCVBUF": 8, "SO_BUF_LOCK": 72}),
    Option("SO_BINDTODEVICE", socket.SOL_SOCKET, 25, b"", "criu", families=_INTERNET, size=16),
    Option("SO_LINGER", socket.SOL_SOCKET, 13, bytes(8), "criu", size=8),
    Option("SO_RCVTIMEO", socket.SOL_SOCKET, 20, bytes(16), "criu", size=16),
    Option("SO_SNDTIMEO", socket.SOL_SOCKET, 21, bytes(16), "criu", size=16),
    *_of(
        socket.SOL_SOCKET,
        "noted",
        {"SO_DEBUG": 1, "SO_TIMESTAMP": 29, "SO_TIMESTAMPNS": 35, "SO_WIFI_STATUS": 41, "SO_NOFCS": 43},
        {"SO_SELECT_ERR_QUEUE": 45, "SO_BUSY_POLL": 46, "SO_TIMESTAMP_NEW": 63, "SO_TIMESTAMPNS_NEW": 64},
        {"SO_PREFER_BUSY_POLL": 69, "SO_RCVMARK": 75, "SO_RCVPRIORITY": 82},
    ),
    *_of(socket.SOL_SOCKET, "noted", {"SO_TXREHASH": (74, 1)}, **_STREAMS),
    *_of(socket.SOL_SOCKET, "noted", {"SO_PASSPIDFD": 76, "SO_PASSRIGHTS": (83, 1)}, **_UNIX),
    Option("SO_MAX_PACING_RATE", socket.SOL_SOCKET, 47, b"\xff" * 8, "noted", size=8),
    *_of(
        socket.SOL_SOCKET,
        "refused",
        {"SO_RXQ_OVFL": 40, "SO_PEEK_OFF": (42, -1), "SO_LOCK_FILTER": 44, "SO_ZEROCOPY": 60, "SO_RESERVE_MEM": 73},
    ),
    Option("SO_TIMESTAMPING", socket.SOL_SOCKET, 37, bytes(8), "refused", size=8),
    Option("SO_TXTIME", socket.SOL_SOCKET, 61, bytes(8), "refused", size=8),
    Option("SO_TIMESTAMPING_NEW", socket.SOL_SOCKET, 65, bytes(8), "refused", size=8),
    # IPv4, including an IPv6 socket's IPv4 packets.
    *_of(socket.IPPROTO_IP, "criu", {"IP_TOS": 1, "IP_TTL": (2, 64), "IP_PKTINFO": 8, "IP_FREEBIND": 15}, **_IPV4),
    *_of(socket.IPPROTO_IP, "noted", {"IP_TOS": 1, "IP_TTL": (2, 64), "IP_PKTINFO": 8}, **_IPV6),
    *_of(socket.IPPROTO_IP, "criu", {"IP_HDRINCL": 3, "IP_NODEFRAG": 22}, kinds=("raw",), **_IPV4),
    *_of(
        socket.IPPROTO_IP,
        "noted",
        {"IP_RECVOPTS": 6, "IP_RETOPTS": 7, "IP_MTU_DISCOVER": (10, 1), "IP_RECVERR": 11, "IP_RECVTTL": 12},
        {"IP_RECVTOS": 13, "IP_PASSSEC": 18, "IP_TRANSPARENT": 19, "IP_RECVORIGDSTADDR": 20, "IP_MINTTL": 21},
        {"IP_CHECKSUM": 23, "IP_RECVFRAGSIZE": 25, "IP_RECVERR_RFC4884": 26, "IP_UNICAST_IF": 50},
        {"IP_LOCAL_PORT_RANGE": 51},
    ),
    *_of(socket.IPPROTO_IP, "noted", {"IP_MULTICAST_TTL": (33, 1), "IP_MULTICAST_LOOP": (34, 1)}, **_DATAGRAMS),
    *_of(socket.IPPROTO_IP, "noted", {"IP_MULTICAST_ALL": (49, 1)}, **_IPV4),
    *_of(socket.IPPROTO_IP, "noted", {"IP_MULTICAST_ALL": 49}, **_IPV6),
    *_of(socket.IPPROTO_IP, "refused", {"IP_BIND_ADDRESS_NO_PORT": 24}),
    *_of(socket.IPPROTO_IP, "refused", {"IP_MULTICAST_IF": 32}, **_DATAGRAMS),
    Option("IP_OPTIONS", socket.IPPROTO_IP, 4, b"", "refused", size=64),
    # IPv6.
    *_of(socket.IPPROTO_IPV6, "criu", {"IPV6_V6ONLY": 26}, kinds=("tcp", "udp"), unconnected=True),
    *_of(socket.IPPROTO_IPV6, "criu", {"IPV6_RECVPKTINFO": 49, "IPV6_FREEBIND": 78}),
    *_of(socket.IPPROTO_IPV6, "criu", {"IPV6_HDRINCL": 36}, kinds=("raw",)),
    *_of(
        socket.IPPROTO_IPV6,
        "noted",
        {"IPV6_2292PKTINFO": 2, "IPV6_2292HOPOPTS": 3, "IPV6_2292DSTOPTS": 4, "IPV6_2292RTHDR": 5},
        {"IPV6_2292HOPLIMIT": 8, "IPV6_FLOWINFO": 11, "IPV6_UNICAST_HOPS": (16, 64), "IPV6_MULTICAST_LOOP": (19, 1)},
        {"IPV6_MTU_DISCOVER": (23, 1), "IPV6_RECVERR": 25, "IPV6_MULTICAST_ALL": (29, 1)},
        {"IPV6_RECVERR_RFC4884": 31, "IPV6_FLOWINFO_SEND": 33, "IPV6_RECVHOPLIMIT": 51, "IPV6_RECVHOPOPTS": 53},
        {"IPV6_RECVRTHDR": 56, "IPV6_RECVDSTOPTS": 58, "IPV6_RECVPATHMTU": 60, "IPV6_DONTFRAG": 62},
        {"IPV6_RECVTCLASS": 66, "IPV6_TCLASS": 67, "IPV6_AUTOFLOWLABEL": (70, 1), "IPV6_ADDR_PREFERENCES": (72, 1280)},
        {"IPV6_MINHOPCOUNT": 73, "IPV6_RECVORIGDSTADDR": 74, "IPV6_TRANSPARENT": 75, "IPV6_UNICAST_IF": 76},
        {"IPV6_RECVFRAGSIZE": 77},
    ),
    *_of(socket.IPPROTO_IPV6, "noted", {"IPV6_MULTICAST_IF": 17, "IPV6_MULTICAST_HOPS": (18, 1)}, **_DATAGRAMS),
    *_of(socket.IPPROTO_IPV6, "refused", {"IPV6_ROUTER_ALERT": 22, "IPV6_ROUTER_ALERT_ISOLATE": 30}, kinds=("raw",)),
    *(
        Option(name, socket.IPPROTO_IPV6, number, b"", "refused", size=64)
        for name, number in {"HOPOPTS": 54, "RTHDRDSTOPTS": 55, "RTHDR": 57, "DSTOPTS": 59}.items()
    ),
    # TCP.
    *_of(
        socket.IPPROTO_TCP,
        "criu",
        {"TCP_NODELAY": 1, "TCP_CORK": 3, "TCP_KEEPIDLE": (4, 7200), "TCP_KEEPINTVL": (5, 75), "TCP_KEEPCNT": (6, 9)},
    ),
    *_of(
        socket.IPPROTO_TCP,
        "noted",
        {"TCP_SYNCNT": (7, 6), "TCP_LINGER2": (8, 60), "TCP_DEFER_ACCEPT": 9, "TCP_THIN_LINEAR_TIMEOUTS": 16},
        {"TCP_USER_TIMEOUT": 18, "TCP_FASTOPEN": 23, "TCP_NOTSENT_LOWAT": 25, "TCP_FASTOPEN_NO_COOKIE": 34},
        {"TCP_INQ": 36, "TCP_TX_DELAY": 37, "TCP_RTO_MAX_MS": (44, 120_000), "TCP_RTO_MIN_US": (45, 200_000)},
        {"TCP_DELACK_MAX_US": (46, 200_000)},
    ),
    *_of(socket.IPPROTO_TCP, "noted", {"TCP_MAXSEG": (2, 536), "TCP_WINDOW_CLAMP": 10}, unconnected=True),
    Option("TCP_CONGESTION", socket.IPPROTO_TCP, 13, b"", "noted", size=16),
    Option("TCP_FASTOPEN_KEY", socket.IPPROTO_TCP, 33, b"", "noted", size=32),
    *_of(socket.IPPROTO_TCP, "refused", {"TCP_SAVE_SYN": 27, "TCP_FASTOPEN_CONNECT": 30}),
    Option("TCP_ULP", socket.IPPROTO_TCP, 31, b"", "refused", size=16),
    # UDP.
    *_of(
        socket.IPPROTO_UDP,
        "noted",
        {"UDP_NO_CHECK6_TX": 101, "UDP_NO_CHECK6_RX": 102, "UDP_SEGMENT": 103, "UDP_GRO": 104},
    ),
    *_of(socket.IPPROTO_UDP, "refused", {"UDP_ENCAP": 100}),
    # Netlink.
    *_of(
        _NETLINK,
        "noted",
        {"NETLINK_PKTINFO": 3, "NETLINK_BROADCAST_ERROR": 4, "NETLINK_NO_ENOBUFS": 5, "NETLINK_LISTEN_ALL_NSID": 8},
        {"NETLINK_CAP_ACK": 10, "NETLINK_EXT_ACK": 11, "NETLINK_GET_STRICT_CHK": 12},
    ),
)
"""All options, in the order in which they are set again."""

_PRIORITY = next(one for one in OPTIONS if one.name == "SO_PRIORITY")
_SEGMENT = next(one for one in OPTIONS if one.name == "TCP_MAXSEG")
_LARGEST_SEGMENT = 32767  # MAX_TCP_WINDOW
_LATE = ("TCP_DEFER_ACCEPT",)
"""Options of a listening socket that are set after the connections that wait there were recreated."""


@dataclass(frozen=True, slots=True)
class Set:
    """An option that was set.

    Attributes:
        level, number: as for setsockopt(2).
        value: in hexadecimal digits.
        late: set it after TCP connections were recreated; else before, so that they inherit it from the listener.
    """

    level: int
    number: int
    value: str
    late: bool


@dataclass(frozen=True, slots=True)
class Options:
    """The notes of a socket: the options that were set.

    `holder` is a process that has the socket open, by its id in the sandbox, and the descriptor.
    """

    holder: tuple[int, int]
    sets: tuple[Set, ...]

    @classmethod
    def from_json(cls, about: Mapping[str, Any]) -> Options:
        """Raises KeyError, TypeError or ValueError if `about` is nothing of the kind."""
        return cls(tuple(about["holder"]), tuple(Set(**one) for one in about["sets"]))


FILE = NotedFile("tvsnap-sockets.json", Options.from_json)
"""The file of the results of `note`, beside the images of a snapshot."""


def kind_of(sock: socket.socket) -> Kind:
    """Returns the kind of a socket."""
    if sock.family in _INTERNET:
        return {socket.SOCK_STREAM: "tcp", socket.SOCK_DGRAM: "udp"}.get(sock.type, "raw")  # type: ignore[return-value]
    return "unix" if sock.family == socket.AF_UNIX else "netlink"


def unusual(sock: socket.socket) -> Iterator[tuple[Option, bytes]]:
    """Yields the options of a socket that differ from their defaults, with their values, except those for CRIU."""
    connected = _is_connected(sock)
    kind = kind_of(sock)
    for option in _options_of(kind, sock.family, connected):
        value = option.value(sock)
        if option is _SEGMENT and value is not None and int.from_bytes(value, "little") > _LARGEST_SEGMENT:
            continue  # that of a connection that has ended; nobody can set it
        if value is not None and value != (_usual_congestion() if option.name == "TCP_CONGESTION" else option.usual):
            yield option, value


@functools.cache
def _options_of(kind: Kind, family: int, connected: bool) -> tuple[Option, ...]:
    levels = {socket.SOL_SOCKET}
    if family in _INTERNET:
        levels |= {socket.IPPROTO_IP} | ({socket.IPPROTO_IPV6} if family == socket.AF_INET6 else set())
        levels |= {"tcp": {socket.IPPROTO_TCP}, "udp": {socket.IPPROTO_UDP}}.get(kind, set())
    elif kind == "netlink":
        levels.add(_NETLINK)
    return tuple(
        one
        for one in OPTIONS
        if one.level in levels and one.fate != "criu" and one.applies(kind, family, connected=connected)
    )


@functools.cache
def _usual_congestion() -> bytes:
    with socket.socket() as sock:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)


def note(sock: socket.socket, pid: int, number: int, sets: Sequence[tuple[Option, bytes]]) -> Options:
    """Returns the notes of a socket, which a process (an id on the host) has open as descriptor `number`."""
    connected = kind_of(sock) == "tcp" and _is_connected(sock)
    sets = list(sets)
    if any(option.name == "IP_TOS" for option, _ in sets) and (priority := _PRIORITY.value(sock)) is not None:
        sets.append((_PRIORITY, priority))  # IP_TOS changes it, so it is set again afterwards
    values = [
        Set(option.level, option.number, value.hex(), connected or option.name in _LATE) for option, value in sets
    ]
    return Options((inner_pid(pid), number), tuple(values))


def bring_back(init: int, pids: Iterable[int], noted: Iterable[Options], *, late: bool) -> None:
    """Sets noted options of a fork's sockets again: the late ones or the others, see `Set`.

    `pids` may include other sandboxes' processes; none of the fork's runs yet. Raises AttemptFailed if that fails.
    """
    inside = insiders(init, pids)
    for one in noted:
        wanted = [each for each in one.sets if each.late == late]
        if not wanted:
            continue
        pid, number = one.holder
        try:
            with borrowed(inside[pid], number) as descriptor, tcp_repair.duplicate(descriptor) as sock:
                for each in wanted:
                    _set(sock, each.level, each.number, bytes.fromhex(each.value))
        except (OSError, KeyError) as error:
            reason = error.strerror if isinstance(error, OSError) else "one of the processes is not there"
            raise AttemptFailed(f"options of a socket could not be brought back in a fork: {reason}") from None


def _set(sock: socket.socket, level: int, number: int, value: bytes) -> None:
    sock.setsockopt(level, number, value)
    if sock.getsockopt(level, number, len(value)) != value:
        raise OSError(errno.EINVAL, f"option {number} of level {level} has another value")


def _is_connected(sock: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        sock.getpeername()
        return True
    return False
