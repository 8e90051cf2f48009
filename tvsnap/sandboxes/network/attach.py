"""Redirects all connections of a network namespace to sockets that are held outside it.

Every address is made local, on the loopback device, and a program in the kernel (BPF, type sk_lookup, Linux 5.9)
chooses a socket for each new TCP connection and each UDP packet, or refuses it by its rules, like a host on which
nobody listens. Nothing else leaves.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tvsnap.model.errors import MachineLacks
from tvsnap.model.network import OWN_ADDRESS, OWN_ADDRESS_6, RELAY_ADDRESS
from tvsnap.sandboxes.kernel.bpf import (
    LINK_CREATE,
    MAP_CREATE,
    MAP_DELETE,
    MAP_NEXT_KEY,
    MAP_UPDATE,
    STACK,
    Code,
    bpf,
    load_program,
)
from tvsnap.sandboxes.kernel.namespaces import in_network_of
from tvsnap.sandboxes.network.rules import Prefix, Verdict

DNS_PORT = 53
_TCP_PORT = 1
_BACKLOG = 512

_LRU_HASH, _LPM_TRIE, _SOCKMAP, _SK_LOOKUP, _ATTACH_SK_LOOKUP = 9, 11, 15, 30, 36
_MAP_LOOKUP_CALL, _MAP_UPDATE_CALL, _RELEASE_CALL, _ASSIGN_CALL = 1, 2, 86, 124
_NO_PREALLOC = 1
_TCP, _DNS, _UDP, _SOCKETS = 0, 1, 2, 3  # of IPv4 and again of IPv6
_SOCKETS_OF_WAY = 5
_RULE_KEY, _REFUSED_KEY = 20, 24  # bytes
_MOST_RULES, _MOST_REFUSED = 16384, 256
_MAPPED = bytes(10) + b"\xff\xff"
_MAPPED_WORD = struct.unpack("=i", _MAPPED[8:])[0]
_KEY, _VALUE, _INDEX = -24, -28, -32  # places on the program's stack: of a map's key and value, and a socket's index
_RELAY_ADDRESS_6 = "2001:2::1"
_NO_DUPLICATE_CHECK = 2
_LOOPBACK = 1  # the device's number in every network namespace
_NEW_ADDRESS, _NEW_ROUTE, _CREATE = 20, 24, 0x600
_TABLE_LOCAL, _PROTOCOL_STATIC, _SCOPE_HOST, _TYPE_LOCAL = 255, 4, 254, 2
_IP_PKTINFO, _IP_FREEBIND = 8, 15
IP_RECVORIGDSTADDR = 20


@dataclass(frozen=True)
class WayOut:
    """Descriptors that keep the way out of one sandbox open.

    Attributes:
        tcp, tcp6: listen for all connections; each one's local address is the one that the sandbox connected to.
        udp: receives all other packets.
        dns: receives packets to port 53 of any address.
        raw: sends packets from any address into the sandbox.
        link: of the BPF program that redirects to these.
        rules: the map of verdicts; see `Rules`.
        refused: the map of refused connections.
    """

    tcp: socket.socket
    tcp6: socket.socket
    udp: socket.socket
    dns: socket.socket
    raw: socket.socket
    link: int
    rules: int
    refused: int

    @property
    def descriptors(self) -> tuple[int, ...]:
        """All of them, in the order of the attributes."""
        return tuple(one if isinstance(one, int) else one.fileno() for one in vars(self).values())

    @classmethod
    def of(cls, descriptors: Sequence[int]) -> WayOut:
        """Returns the way with these descriptors."""
        tcp, tcp6, udp, dns, raw = (socket.socket(fileno=one) for one in descriptors[:_SOCKETS_OF_WAY])
        return cls(tcp, tcp6, udp, dns, raw, *descriptors[_SOCKETS_OF_WAY:])

    def close(self) -> None:
        """Closes this process's descriptors."""
        for one in vars(self).values():
            os.close(one) if isinstance(one, int) else one.close()

    def judge(self, address: Prefix, verdict: Verdict) -> None:
        """Sets the verdict on connections to an address from now on; raises OSError if there are too many rules."""
        _update(self.rules, _rule_key(address), struct.pack("=I", verdict))

    def take_refused(self) -> list[tuple[str, int, int]]:
        """Returns address, port and protocol of each connection that was refused since the last time."""
        connections: list[tuple[str, int, int]] = []
        buffer = ctypes.create_string_buffer(_REFUSED_KEY)
        while len(connections) < _MOST_REFUSED and _first_key(self.refused, buffer):
            _delete(self.refused, buffer)
            numbers, value = buffer.raw[4:20], struct.unpack("=I", buffer.raw[20:24])[0]
            ip = ipaddress.IPv6Address(numbers)
            connections.append((str(ip.ipv4_mapped or ip), value & 0xFFFF, value >> 16))
        return connections


def attach(init: int, rules: Mapping[Prefix, Verdict], udp: bool = True) -> WayOut:
    """Makes a way out of a sandbox that has none; takes two milliseconds.

    Raises MachineLacks if the kernel, or the lack of privileges, does not allow it.

    Args:
        init: the sandbox's PID 1, as the host sees it.
        rules: the verdicts on connections.
        udp: whether packets of UDP can leave.
    """
    try:
        return in_network_of(init, partial(_attach, rules, udp))
    except OSError as error:
        raise MachineLacks(
            f"sandboxes cannot be given a network on this machine ({error.strerror}: {error.filename or 'sockets'}); "
            "that needs Linux 5.9 with BPF, and root's rights"
        ) from None


def network_complaint() -> str:
    """Returns why this machine can give no sandbox a network, by trying it in a temporary namespace; "" if it can."""
    command, pipe = ["unshare", "--net", "sh", "-c", "echo; exec cat"], subprocess.PIPE
    try:
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            if not process.stdout.readline():  # the process ends with its input, at the end of the block
                return process.stderr.read().decode(errors="replace").strip()
            attach(process.pid, {}).close()
    except (MachineLacks, OSError) as error:
        return str(error)
    return ""


def _with_version_6() -> socket.AddressFamily:
    """Makes all addresses of IPv6 local; returns its family, or IPv4's if the kernel has no IPv6."""
    try:
        _make_all_addresses_local(socket.AF_INET6, OWN_ADDRESS_6)
    except OSError:
        return socket.AF_INET
    return socket.AF_INET6


def _attach(rules: Mapping[Prefix, Verdict], udp: bool) -> WayOut:
    _make_all_addresses_local(socket.AF_INET, OWN_ADDRESS)
    with contextlib.ExitStack() as undone:

        def made(family: int, kind: int, protocol: int = 0) -> socket.socket:
            return undone.enter_context(socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol))

        def mapped(kind: int, key: int, value: int, most: int, flags: int = 0) -> int:
            descriptor = bpf(MAP_CREATE, struct.pack("=5I", kind, key, value, most, flags), "a map")
            undone.callback(os.close, descriptor)
            return descriptor

        tcp, tcp6 = made(socket.AF_INET, socket.SOCK_STREAM), made(_with_version_6(), socket.SOCK_STREAM)
        packets, dns = made(socket.AF_INET, socket.SOCK_DGRAM), made(socket.AF_INET, socket.SOCK_DGRAM)
        raw = made(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        tcp.bind((RELAY_ADDRESS, _TCP_PORT))
        if tcp6.family == socket.AF_INET6:
            tcp6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            tcp6.setsockopt(socket.SOL_IP, _IP_FREEBIND, 1)
            tcp6.bind((_RELAY_ADDRESS_6, _TCP_PORT))
        for one in (tcp, tcp6):
            one.listen(_BACKLOG)
        packets.setsockopt(socket.IPPROTO_IP, IP_RECVORIGDSTADDR, 1)
        packets.bind((RELAY_ADDRESS, _TCP_PORT))
        dns.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        dns.bind((RELAY_ADDRESS, DNS_PORT))
        sockets = mapped(_SOCKMAP, 4, 8, 2 * _SOCKETS)
        redirected = {_TCP: tcp, _DNS: dns, **({_UDP: packets} if udp else {})}
        if tcp6.family == socket.AF_INET6:
            redirected[_SOCKETS + _TCP] = tcp6
        for index, one in redirected.items():
            _update(sockets, struct.pack("=I", index), struct.pack("=Q", one.fileno()))
        verdicts = mapped(_LPM_TRIE, _RULE_KEY, 4, _MOST_RULES, _NO_PREALLOC)
        refused = mapped(_LRU_HASH, _REFUSED_KEY, 4, _MOST_REFUSED)
        for address, verdict in rules.items():
            _update(verdicts, _rule_key(address), struct.pack("=I", verdict))
        program = load_program(_program(verdicts, refused, sockets), _SK_LOOKUP, _ATTACH_SK_LOOKUP, name=b"tvsnap")
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            link = bpf(LINK_CREATE, struct.pack("=4I2Q", program, own, _ATTACH_SK_LOOKUP, 0, 0, 0), "a link")
        finally:
            os.close(own)
            os.close(program)
        undone.pop_all()
        os.close(sockets)
        return WayOut(tcp, tcp6, packets, dns, raw, link, verdicts, refused)


def _make_all_addresses_local(family: socket.AddressFamily, own_address: str) -> None:
    own = socket.inet_pton(family, own_address)
    address = struct.pack("=4BI", family, 8 * len(own), _NO_DUPLICATE_CHECK, 0, _LOOPBACK)
    address += _attribute(1, own) + _attribute(2, own)
    kind = (_TABLE_LOCAL, _PROTOCOL_STATIC, _SCOPE_HOST, _TYPE_LOCAL)
    route = struct.pack("=8BI", family, 0, 0, 0, *kind, 0)
    route += _attribute(4, struct.pack("=I", _LOOPBACK)) + _attribute(7, own)
    for request, body in ((_NEW_ADDRESS, address), (_NEW_ROUTE, route)):
        _ask_kernel(request, body)


def _ask_kernel(request: int, body: bytes) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(body), request, _CREATE | 5, 1, 0) + body)
        error = -int(struct.unpack_from("=i", kernel.recv(4096), 16)[0])
        if error:
            raise OSError(error, os.strerror(error), "addresses of the network namespace")


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _rule_key(address: Prefix) -> bytes:
    """Returns the key of a prefix; addresses of IPv4 are mapped into those of IPv6 (RFC 4291)."""
    if address.version == 6:
        return struct.pack("=I", address.prefixlen) + address.network_address.packed
    return struct.pack("=I", 96 + address.prefixlen) + _MAPPED + address.network_address.packed


def _update(map: int, key: bytes, value: bytes) -> None:
    buffers = [ctypes.create_string_buffer(one, len(one)) for one in (key, value)]
    fields = struct.pack("=IIQQQ", map, 0, *(ctypes.addressof(one) for one in buffers), 0)
    bpf(MAP_UPDATE, fields, "an entry of a map")


def _first_key(map: int, key: ctypes.Array[ctypes.c_char]) -> bool:
    """Finds any key of a map; False if it is empty."""
    try:
        bpf(MAP_NEXT_KEY, struct.pack("=IIQQQ", map, 0, 0, ctypes.addressof(key), 0), "a map")
    except FileNotFoundError:
        return False
    return True


def _delete(map: int, key: ctypes.Array[ctypes.c_char]) -> None:
    with contextlib.suppress(FileNotFoundError):  # the kernel may have made room meanwhile
        bpf(MAP_DELETE, struct.pack("=IIQQQ", map, 0, ctypes.addressof(key), 0, 0), "a map")


def _program(rules: int, refused: int, sockets: int) -> bytes:
    """Returns the program, which runs for each new connection, and for each packet that belongs to none.

    It returns 0 to refuse, as if nobody listened, and else 1: without an assigned socket the normal lookup follows.

    Its argument is a `struct bpf_sk_lookup` (linux/bpf.h): at 8 the family, at 12 the protocol, at 40 the local IPv4
    address, at 44 the local IPv6 address, at 60 the local port. The other arguments are the descriptors of maps.
    """
    code = Code()
    _take_address(code)
    _take_verdict(code, rules)
    _choose_socket(code)
    _assign(code, sockets)
    code.label("as usual")
    code.leave(1)
    code.label("refuse")
    _refuse(code, refused)
    return code.to_bytes()


def _take_address(code: Code) -> None:
    """Writes a key of the map of rules: the address, and its length in bits."""
    code.move(6, 1)  # register 6 has the argument from now on
    code.load(4, 2, 6, 8)
    code.jump_if(2, socket.AF_INET6, "version 6")
    code.jump_unless(2, socket.AF_INET, "as usual")
    for offset, word in ((4, 0), (8, 0), (12, _MAPPED_WORD)):
        code.store_constant(4, STACK, _KEY + offset, word)
    code.load(4, 3, 6, 40)
    code.store(4, STACK, _KEY + 16, 3)
    code.jump_if(2, socket.AF_INET, "decide")
    code.label("version 6")
    for offset in range(0, 16, 4):
        code.load(4, 3, 6, 44 + offset)
        code.store(4, STACK, _KEY + 4 + offset, 3)
    code.label("decide")
    code.store_constant(4, STACK, _KEY, 128)


def _take_verdict(code: Code, rules: int) -> None:
    """Sets register 8 to the verdict of the rules."""
    code.set_map(1, rules)
    code.set_address(2, _KEY)
    code.call(_MAP_LOOKUP_CALL)
    code.set(8, Verdict.REFUSED)
    code.jump_if(0, 0, "ruled")
    code.load(4, 8, 0, 0)
    code.label("ruled")
    code.jump_if(8, Verdict.INSIDE, "as usual")


def _choose_socket(code: Code) -> None:
    """Sets register 7 to the index of the socket, by protocol, port and family."""
    code.load(4, 2, 6, 12)
    code.load(4, 3, 6, 60)
    code.set(7, _TCP)
    code.jump_if(2, socket.IPPROTO_TCP, "judged")
    code.set(7, _UDP)
    code.jump_unless(3, DNS_PORT, "judged")
    code.set(7, _DNS)
    code.jump_if(7, _DNS, "choose")
    code.label("judged")
    code.jump_unless(8, Verdict.RELAYED, "refuse")
    code.label("choose")
    code.load(4, 2, 6, 8)
    code.jump_if(2, socket.AF_INET, "chosen")
    code.add(7, _SOCKETS)
    code.label("chosen")


def _assign(code: Code, sockets: int) -> None:
    """Gives the connection or packet to the socket."""
    code.store(4, STACK, _INDEX, 7)
    code.set_map(1, sockets)
    code.set_address(2, _INDEX)
    code.call(_MAP_LOOKUP_CALL)
    code.jump_if(0, 0, "refuse")
    code.move(7, 0)
    code.move(1, 6)
    code.move(2, 7)
    code.set(3, 0)
    code.call(_ASSIGN_CALL)
    code.move(1, 7)
    code.call(_RELEASE_CALL)


def _refuse(code: Code, refused: int) -> None:
    """Notes address, protocol and port in the map of refused connections."""
    code.load(4, 2, 6, 12)
    code.load(4, 3, 6, 60)
    code.shift_left(2, 16)
    code.combine(3, 2)
    code.store(4, STACK, _KEY + _RULE_KEY, 3)
    code.store_constant(4, STACK, _VALUE, 1)
    code.set_map(1, refused)
    code.set_address(2, _KEY)
    code.set_address(3, _VALUE)
    code.set(4, 0)
    code.call(_MAP_UPDATE_CALL)
    code.leave(0)
