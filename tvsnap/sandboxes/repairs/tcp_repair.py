"""Makes sockets the ends of a TCP connection without sending packets (TCP_REPAIR).

That needs rights over the network namespace, which root of this machine has, and nobody inside a sandbox.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tvsnap.host.libc import checked, libc

_REPAIR, _REPAIR_QUEUE, _QUEUE_SEQUENCE, _REPAIR_OPTIONS, _TIMESTAMP = 19, 20, 21, 22, 24
_NEITHER, RECEIVING, SENDING = 0, 1, 2
_OFF, _ON, _OFF_SILENTLY = 0, 1, -1
_SEGMENT, _WINDOW_SCALE, _SELECTIVE, _TIMESTAMPS = 2, 3, 4, 8
_HAS_TIMESTAMPS, _HAS_SELECTIVE, _HAS_SCALE = 1, 2, 4
_INFO = struct.Struct("=5x2B77xI")
_PART = 1 << 15
"""Bytes put into a queue at once, because the kernel allocates contiguous memory for them."""
_SEND_BUFFER_FORCE, _RECEIVE_BUFFER_FORCE, _BUFFER_LOCK = 32, 33, 72
_NO_ADDRESS = struct.pack("=H14x", socket.AF_UNSPEC)


@dataclass(frozen=True, slots=True)
class Terms:
    """The options that two ends have negotiated for their connection.

    Attributes:
        segment: the maximum segment size in bytes that this end announces.
        options: flags for negotiated options, as in TCP_INFO.
        send_scale, receive_scale: the window scales.
    """

    segment: int = 1400
    options: int = _HAS_TIMESTAMPS
    send_scale: int = 0
    receive_scale: int = 0

    @classmethod
    def of(cls, sock: socket.socket) -> Terms:
        """Returns the terms of one end."""
        options, scales, segment = _INFO.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size))
        return cls(segment, options, scales & 15, scales >> 4)

    def to_bytes(self, peer_segment: int) -> bytes:
        """Returns the argument for TCP_REPAIR_OPTIONS."""
        data = struct.pack("=2I", _SEGMENT, min(self.segment, peer_segment))
        if self.options & _HAS_SCALE:
            data += struct.pack("=2I", _WINDOW_SCALE, self.send_scale | self.receive_scale << 16)
        if self.options & _HAS_SELECTIVE:
            data += struct.pack("=2I", _SELECTIVE, 0)
        if self.options & _HAS_TIMESTAMPS:
            data += struct.pack("=2I", _TIMESTAMPS, 0)
        return data


def connect(
    sock: socket.socket,
    local: tuple[str, int],
    remote: tuple[str, int],
    *,
    sent: int,
    received: int,
    terms: bytes,
) -> None:
    """Makes an unconnected socket the end of a connection, and leaves it in repair mode.

    `sent` and `received` are the sequence numbers of the next byte in either direction.
    """
    begin(sock)
    for queue, number in ((SENDING, sent), (RECEIVING, received)):
        _set(sock, _REPAIR_QUEUE, queue)
        _set(sock, _QUEUE_SEQUENCE, struct.pack("=I", number & 0xFFFFFFFF))
    _set(sock, _REPAIR_QUEUE, _NEITHER)
    sock.bind(local)
    sock.connect(remote)
    _set(sock, _REPAIR_OPTIONS, terms)


def begin(sock: socket.socket) -> None:
    """Puts a socket into repair mode, in which other sockets may use its addresses."""
    _set(sock, _REPAIR, _ON)


def end(sock: socket.socket, *, silently: bool = False) -> None:
    """Ends repair mode, without a window probe if `silently`; SO_REUSEADDR and SO_REUSEPORT must be set again then."""
    _set(sock, _REPAIR, _OFF_SILENTLY if silently else _OFF)


def timestamp(sock: socket.socket) -> int:
    """Returns the timestamp clock of a connection's segments."""
    return sock.getsockopt(socket.IPPROTO_TCP, _TIMESTAMP)


def set_timestamp(sock: socket.socket, value: int) -> None:
    """Sets the timestamp clock of a socket in repair mode."""
    _set(sock, _TIMESTAMP, struct.pack("=I", value & 0xFFFFFFFF))


def next_number(sock: socket.socket, queue: int) -> int:
    """Returns the sequence number of the next byte that a socket in repair mode sends or receives."""
    _set(sock, _REPAIR_QUEUE, queue)
    try:
        value = sock.getsockopt(socket.IPPROTO_TCP, _QUEUE_SEQUENCE, 4)
        return int(struct.unpack("=I", value)[0])
    finally:
        _set(sock, _REPAIR_QUEUE, _NEITHER)


def unacknowledged(sock: socket.socket, size: int) -> bytes:
    """Returns the data of a socket in repair mode that was not acknowledged, at most `size` bytes."""
    _set(sock, _REPAIR_QUEUE, SENDING)
    try:
        return sock.recv(size, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""
    finally:
        _set(sock, _REPAIR_QUEUE, _NEITHER)


def receive(sock: socket.socket, data: bytes) -> None:
    """Puts data into the receive queue of a socket in repair mode, like data from the other end."""
    _set(sock, _REPAIR_QUEUE, RECEIVING)
    with _roomy(sock, socket.SO_RCVBUF, _RECEIVE_BUFFER_FORCE, len(data)):
        _send(sock, data)
    _set(sock, _REPAIR_QUEUE, _NEITHER)


def send(sock: socket.socket, data: bytes) -> None:
    """Sends data of any size, or queues it until the other end has room."""
    with _roomy(sock, socket.SO_SNDBUF, _SEND_BUFFER_FORCE, len(data)):
        _send(sock, data)


def _send(sock: socket.socket, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[sock.send(view[:_PART], socket.MSG_DONTWAIT) :]


@contextlib.contextmanager
def _roomy(sock: socket.socket, option: int, force: int, size: int) -> Iterator[None]:
    """Enlarges a socket's buffer temporarily by a number of bytes."""
    usual = sock.getsockopt(socket.SOL_SOCKET, option)
    locked = sock.getsockopt(socket.SOL_SOCKET, _BUFFER_LOCK)
    sock.setsockopt(socket.SOL_SOCKET, force, min(2 * size + usual, 1 << 30))  # the kernel doubles the value
    try:
        yield
    finally:
        sock.setsockopt(socket.SOL_SOCKET, force, usual // 2)
        sock.setsockopt(socket.SOL_SOCKET, _BUFFER_LOCK, locked)


def disconnect(sock: socket.socket) -> None:
    """Resets a socket to the state of one that was never connected or shut down."""
    address = ctypes.create_string_buffer(_NO_ADDRESS, len(_NO_ADDRESS))
    checked(libc.connect(sock.fileno(), address, len(_NO_ADDRESS)), "a socket")


def _set(sock: socket.socket, option: int, value: int | bytes) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, option, value)


def duplicate(descriptor: int) -> socket.socket:
    """Returns a new socket for a descriptor; its mode (O_NONBLOCK), which others share, stays as it is."""
    return socket.socket(fileno=os.dup(descriptor))
