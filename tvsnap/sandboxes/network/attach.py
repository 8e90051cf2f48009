"""Redirects all connections of a network namespace to two sockets that are held outside it.

Every address is made local, on the loopback device, and a program in the kernel (BPF, type sk_lookup, Linux 5.9)
chooses one of the two sockets for each new TCP connection and each UDP packet to port 53. Nothing else leaves.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
import subprocess
from dataclasses import dataclass

from tvsnap.model.errors import MachineLacks
from tvsnap.model.network import OWN_ADDRESS, RELAY_ADDRESS
from tvsnap.sandboxes.processes.namespaces import in_network_of

DNS_PORT = 53
_TCP_PORT = 1
_BACKLOG = 512

_libc = ctypes.CDLL(None, use_errno=True)
_BPF = {"x86_64": 321, "aarch64": 280}
_MAP_CREATE, _MAP_UPDATE, _PROGRAM_LOAD, _LINK_CREATE = 0, 2, 5, 28
_SOCKMAP, _SK_LOOKUP, _ATTACH_SK_LOOKUP = 15, 30, 36
_MAP_LOOKUP_CALL, _RELEASE_CALL, _ASSIGN_CALL = 1, 86, 124
_LOOPBACK = 1  # the device's number in every network namespace
_NEW_ADDRESS, _NEW_ROUTE, _CREATE = 20, 24, 0x600
_TABLE_LOCAL, _PROTOCOL_STATIC, _SCOPE_HOST, _TYPE_LOCAL = 255, 4, 254, 2
_IP_PKTINFO = 8


@dataclass(frozen=True)
class WayOut:
    """Descriptors that keep the way out of one sandbox open.

    Attributes:
        tcp: listens for all connections; each one's local address is the one that the sandbox connected to.
        dns: receives packets to port 53 of any address.
        link: of the BPF program that redirects to both.
    """

    tcp: socket.socket
    dns: socket.socket
    link: int

    def close(self) -> None:
        """Closes this process's descriptors."""
        self.tcp.close()
        self.dns.close()
        os.close(self.link)


def attach(init: int) -> WayOut:
    """Makes a way out of a sandbox that has none, given its PID 1 as the host sees it; takes a millisecond.

    Raises MachineLacks if the kernel, or the lack of privileges, does not allow it.
    """
    try:
        return in_network_of(init, _attach)
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
            attach(process.pid).close()
    except (MachineLacks, OSError) as error:
        return str(error)
    return ""


def _attach() -> WayOut:
    _make_all_addresses_local()
    tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    opened: list[int] = []
    try:
        tcp.bind((RELAY_ADDRESS, _TCP_PORT))
        tcp.listen(_BACKLOG)
        dns.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        dns.bind((RELAY_ADDRESS, DNS_PORT))
        sockets = _bpf(_MAP_CREATE, struct.pack("=5I", _SOCKMAP, 4, 8, 2, 0), "a map of sockets")
        opened.append(sockets)
        for index, one in enumerate((tcp, dns)):
            key, value = ctypes.c_uint32(index), ctypes.c_uint64(one.fileno())
            fields = struct.pack("=IIQQQ", sockets, 0, ctypes.addressof(key), ctypes.addressof(value), 0)
            _bpf(_MAP_UPDATE, fields, "a map of sockets")
        program = _load(_program(sockets))
        opened.append(program)
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        opened.append(own)
        link = _bpf(_LINK_CREATE, struct.pack("=4I2Q", program, own, _ATTACH_SK_LOOKUP, 0, 0, 0), "a link")
        return WayOut(tcp, dns, link)
    except BaseException:
        tcp.close()
        dns.close()
        raise
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _make_all_addresses_local() -> None:
    own = socket.inet_aton(OWN_ADDRESS)
    address = struct.pack("=4BI", socket.AF_INET, 32, 0, 0, _LOOPBACK) + _attribute(1, own) + _attribute(2, own)
    kind = (_TABLE_LOCAL, _PROTOCOL_STATIC, _SCOPE_HOST, _TYPE_LOCAL)
    route = struct.pack("=8BI", socket.AF_INET, 0, 0, 0, *kind, 0)
    route += _attribute(4, struct.pack("=I", _LOOPBACK)) + _attribute(7, own)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as kernel:
        for request, body in ((_NEW_ADDRESS, address), (_NEW_ROUTE, route)):
            kernel.send(struct.pack("=IHHII", 16 + len(body), request, _CREATE | 5, 1, 0) + body)
            error = -int(struct.unpack_from("=i", kernel.recv(4096), 16)[0])
            if error:
                raise OSError(error, os.strerror(error), "addresses of the network namespace")


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _bpf(command: int, fields: bytes, what: str) -> int:
    buffer = ctypes.create_string_buffer(fields, len(fields))
    number = _BPF.get(platform.machine())
    if number is None:
        raise OSError(0, f"unknown processor {platform.machine()}", what)
    result = int(_libc.syscall(number, command, buffer, len(fields)))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), what)
    return result


def _load(program: bytes) -> int:
    code, license = ctypes.create_string_buffer(program, len(program)), ctypes.create_string_buffer(b"GPL")
    fields = struct.pack(
        "=2I2Q2IQ2I16s2I", _SK_LOOKUP, len(program) // 8, ctypes.addressof(code), ctypes.addressof(license),
        0, 0, 0, 0, 0, b"tvsnap", 0, _ATTACH_SK_LOOKUP,
    )  # fmt: skip
    return _bpf(_PROGRAM_LOAD, fields, "a program")


def _program(sockets: int) -> bytes:
    """Returns the program, which runs for each new connection, and for each packet that belongs to none.

    Its argument is a `struct bpf_sk_lookup` (linux/bpf.h): at 8 the family, at 12 the protocol, at 40 the local IPv4
    address, at 60 the local port. It always returns 1: without an assigned socket the normal lookup follows.
    """
    own = struct.unpack("=i", socket.inet_aton(OWN_ADDRESS))[0]
    first_octet = struct.unpack("=i", bytes([255, 0, 0, 0]))[0]
    loopback = struct.unpack("=i", bytes([127, 0, 0, 0]))[0]
    load, move, set_to, equal, unequal, equal_32 = 0x61, 0xBF, 0xB7, 0x15, 0x55, 0x16
    call, leave, store, add, bits_and, wide = 0x85, 0x95, 0x63, 0x07, 0x54, 0x18
    as_usual, choose = "as usual", "choose"
    lines: list[tuple[int, int, int, int | str, int] | str] = [  # code, target, source, offset or label, value
        (move, 6, 1, 0, 0),
        (load, 2, 6, 8, 0),
        (unequal, 2, 0, as_usual, socket.AF_INET),
        (load, 3, 6, 40, 0),
        (equal_32, 3, 0, as_usual, own),
        (bits_and, 3, 0, 0, first_octet),
        (equal_32, 3, 0, as_usual, loopback),
        (set_to, 7, 0, 0, 0),
        (load, 2, 6, 12, 0),
        (equal, 2, 0, choose, socket.IPPROTO_TCP),
        (load, 2, 6, 60, 0),
        (unequal, 2, 0, as_usual, DNS_PORT),
        (set_to, 7, 0, 0, 1),
        choose,
        (store, 10, 7, -4, 0),
        (wide, 1, 1, 0, sockets),  # the descriptor of a map
        (0, 0, 0, 0, 0),
        (move, 2, 10, 0, 0),
        (add, 2, 0, 0, -4),
        (call, 0, 0, 0, _MAP_LOOKUP_CALL),
        (equal, 0, 0, as_usual, 0),
        (move, 7, 0, 0, 0),
        (move, 1, 6, 0, 0),
        (move, 2, 7, 0, 0),
        (set_to, 3, 0, 0, 0),
        (call, 0, 0, 0, _ASSIGN_CALL),
        (move, 1, 7, 0, 0),
        (call, 0, 0, 0, _RELEASE_CALL),
        as_usual,
        (set_to, 0, 0, 0, 1),
        (leave, 0, 0, 0, 0),
    ]
    labels: dict[str, int] = {}
    instructions: list[tuple[int, int, int, int | str, int]] = []
    for line in lines:
        if isinstance(line, str):
            labels[line] = len(instructions)
        else:
            instructions.append(line)
    program = b""
    for index, (code, target, source, offset, value) in enumerate(instructions):
        jump = offset if isinstance(offset, int) else labels[offset] - index - 1
        program += struct.pack("=BBhi", code, target | source << 4, jump, value)
    return program
