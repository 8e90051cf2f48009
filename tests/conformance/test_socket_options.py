"""Options of sockets: each of the list, at each kind of socket that has it, is the same in a fork, or refused by name.

The local backend alone: nothing is set again in what an engine restores.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Iterator

from tests.conformance.helpers import Lab
from tests.conformance.jobs import REPORTING, report_of, start
from tvsnap.sandboxes.repairs.socket_options import OPTIONS, Option, unusual

SOCKETS = {
    "tcp": (socket.AF_INET, socket.SOCK_STREAM, 0),
    "tcp6": (socket.AF_INET6, socket.SOCK_STREAM, 0),
    "listening tcp": (socket.AF_INET, socket.SOCK_STREAM, 0),
    "listening tcp6": (socket.AF_INET6, socket.SOCK_STREAM, 0),
    "connected tcp": (socket.AF_INET, socket.SOCK_STREAM, 0),
    "connected tcp6": (socket.AF_INET6, socket.SOCK_STREAM, 0),
    "udp": (socket.AF_INET, socket.SOCK_DGRAM, 0),
    "udp6": (socket.AF_INET6, socket.SOCK_DGRAM, 0),
    "bound udp": (socket.AF_INET, socket.SOCK_DGRAM, 0),
    "bound udp6": (socket.AF_INET6, socket.SOCK_DGRAM, 0),
    "unix": (socket.AF_UNIX, socket.SOCK_STREAM, 0),
    "unix of datagrams": (socket.AF_UNIX, socket.SOCK_DGRAM, 0),
    "netlink": (socket.AF_NETLINK, socket.SOCK_RAW, 0),
}
OTHERS: dict[str, int | bytes] = {
    "SO_LINGER": bytes([1, 0, 0, 0, 7, 0, 0, 0]),
    "SO_RCVTIMEO": bytes([9] + [0] * 15),
    "SO_SNDTIMEO": bytes([9] + [0] * 15),
    "SO_MAX_PACING_RATE": (1 << 20).to_bytes(8, "little"),
    "SO_RCVLOWAT": 9,
    "SO_SNDBUF": 50_000,
    "SO_RCVBUF": 50_000,
    "SO_BINDTODEVICE": b"lo",
    "IP_TOS": 0x10,
    "IP_OPTIONS": bytes([7, 7, 4, 0, 0, 0, 0, 1]),
    "IP_MULTICAST_IF": int.from_bytes(socket.inet_aton("127.0.0.1"), "little"),
    "IP_UNICAST_IF": socket.htonl(1),
    "IPV6_UNICAST_IF": socket.htonl(1),
    "IP_LOCAL_PORT_RANGE": 30000 << 16 | 20000,
    "IPV6_ADDR_PREFERENCES": 2,
    "TCP_MAXSEG": 1000,
    "TCP_WINDOW_CLAMP": 10000,
    "TCP_USER_TIMEOUT": 30000,
    "TCP_FASTOPEN_KEY": bytes(range(16)),
    "TCP_CONGESTION": b"reno",
    "TCP_RTO_MAX_MS": 60_000,
    "TCP_RTO_MIN_US": 100_000,
    "TCP_DELACK_MAX_US": 100_000,
    "TCP_ULP": b"tls",
    "UDP_ENCAP": 2,
    "SO_TIMESTAMPING": bytes([16, 0, 0, 0, 0, 0, 0, 0]),
    "SO_TIMESTAMPING_NEW": bytes([16, 0, 0, 0, 0, 0, 0, 0]),
    "SO_TXTIME": bytes([1, 0, 0, 0, 0, 0, 0, 0]),
    "HOPOPTS": bytes([0, 0, 1, 4, 0, 0, 0, 0]),
    "DSTOPTS": bytes([0, 0, 1, 4, 0, 0, 0, 0]),
    "RTHDRDSTOPTS": bytes([0, 0, 1, 4, 0, 0, 0, 0]),
}
"""Values that are not the usual ones, where that is neither 1 more nor 0."""

HOLDER = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, [resource.getrlimit(resource.RLIMIT_NOFILE)[1]] * 2)
SOCKETS, WANTED = {sockets!r}, {wanted!r}
def make(kind):
    family, type, protocol = SOCKETS[kind]
    its = socket.socket(family, type, protocol)
    if " " not in kind: return its
    if family == socket.AF_INET: its.bind(("127.0.0.1", 0))
    if family == socket.AF_INET6: its.bind(("::1", 0))
    if kind.startswith("listening"): its.listen()
    if not kind.startswith("connected"): return its
    its.listen()
    other = socket.create_connection(its.getsockname()[:2])
    kept.append(its.accept()[0])
    return other
kept, made, before, unset = [], {{}}, {{}}, []
for kind, name, level, number, value, size in WANTED:
    its = made[kind, name] = make(kind)
    usual = attempt(its.getsockopt, level, number, size)
    said = attempt(its.setsockopt, level, number, value)
    before[kind, name] = attempt(its.getsockopt, level, number, size)
    if said or before[kind, name] == usual:
        unset.append((kind, name))
        its.close()
        del made[kind, name]
def report():
    now = {{(kind, name): attempt(made[kind, name].getsockopt, level, number, size)
           for kind, name, level, number, _, size in WANTED if (kind, name) in made}}
    priorities = {{one: its.getsockopt(1, 12) for one, its in made.items()}}
    return {{"unset": unset, "lost": [one for one in made if now[one] != before[one]], "values": now,
            "priorities": priorities}}
"""


def other_value(option: Option) -> int | bytes:
    usual = int.from_bytes(option.usual, "little", signed=True)
    return OTHERS.get(option.name, 0 if usual == 1 else usual + 1)


def options_of(fate: str) -> Iterator[tuple[str, Option]]:
    """Yields kinds of sockets, and the options of one fate that the list has for them."""
    for kind, (family, of, _) in SOCKETS.items():
        short = "tcp" if of == socket.SOCK_STREAM else "udp"
        if family in (socket.AF_UNIX, socket.AF_NETLINK):
            short = "unix" if family == socket.AF_UNIX else "netlink"
        levels = {"tcp": {0, 6}, "udp": {0, 17}, "netlink": {270}}.get(short, set()) | {socket.SOL_SOCKET}
        levels |= {socket.IPPROTO_IPV6} if family == socket.AF_INET6 else set()
        for option in OPTIONS:
            connected = kind.startswith("connected")
            applies = option.applies(short, family, connected=connected)  # type: ignore[arg-type]
            if option.level in levels and applies and (option.fate == "refused") == (fate == "refused"):
                yield kind, option


UNSETTABLE = {"IP_TRANSPARENT", "IPV6_TRANSPARENT", "NETLINK_LISTEN_ALL_NSID", "SO_DEBUG", "SO_MARK"}
UNSETTABLE |= {
    "SO_PREFER_BUSY_POLL",
    "SO_RESERVE_MEM",
    "RTHDR",
    "IPV6_ROUTER_ALERT",
    "IPV6_ROUTER_ALERT_ISOLATE",
    "TCP_ULP",
}
"""Those that nobody inside may set, at none of these sockets."""
UNLISTED = {
    socket.SOL_SOCKET: {26, 49},  # a filter, and SO_INCOMING_CPU
    socket.IPPROTO_TCP: {12, 19, 24},  # TCP_QUICKACK, and what only root of the machine may
    socket.IPPROTO_UDP: {1},  # UDP_CORK, which CRIU refuses
}
"""Numbers of options that are kept in other ways, or that the kernel changes by itself."""


def test_options_that_are_kept(local_lab: Lab) -> None:
    sandbox = local_lab.start()
    wanted = [
        (kind, option.name, int(option.level), option.number, other_value(option), option.size)
        for kind, option in options_of("kept")
    ]
    sockets = {kind: tuple(map(int, one)) for kind, one in SOCKETS.items()}
    start(sandbox, "options", HOLDER.format(sockets=sockets, wanted=wanted) + REPORTING)
    fork = local_lab.fork_of(sandbox)
    first, second = (eval(report_of(one, "options")) for one in (sandbox, fork))
    assert first["lost"] == []
    assert {one: (first["values"][one], second["values"][one]) for one in second["lost"]} == {}
    assert first == second
    names = {option.name for _, option in options_of("kept")}
    assert names - {name for _, name in first["values"]} <= UNSETTABLE


def made(kind: str) -> socket.socket:
    family, of, protocol = SOCKETS[kind]
    its = socket.socket(family, of, protocol)
    if kind.startswith("listening"):
        its.listen()
    return its


def test_options_that_are_refused() -> None:
    wrong, found = [], set()
    for kind, option in options_of("refused"):
        with made(kind) as its:
            assert option.name not in [one.name for one, _ in unusual(its)]
            with contextlib.suppress(OSError):
                its.setsockopt(option.level, option.number, other_value(option))
                found.add(option.name)
                if option.name not in [one.name for one, _ in unusual(its)]:
                    wrong.append((kind, option.name, option.value(its)))
    assert wrong == []
    assert {option.name for _, option in options_of("refused")} - found <= UNSETTABLE


def test_the_list_has_all_options_of_this_kernel() -> None:
    """Whatever can be set and then read differently is an option."""
    known = {(int(option.level), option.number) for option in OPTIONS}
    missing = set()
    for kind, level in itertools.product(SOCKETS, (socket.SOL_SOCKET, 0, 41, 6, 17, 270)):
        for number in range(1, 128):
            if (level, number) in known or number in UNLISTED.get(level, set()):
                continue
            for value in (0, 1, 2, 1000):
                with made(kind) as its, contextlib.suppress(OSError):
                    before = its.getsockopt(level, number, 64)
                    its.setsockopt(level, number, value)
                    if its.getsockopt(level, number, 64) != before:
                        missing.add((kind, level, number))
    assert missing == set()


def test_sockets_of_which_nothing_was_set_are_usual() -> None:
    for kind in SOCKETS:
        with made(kind) as its:
            assert list(unusual(its)) == []
