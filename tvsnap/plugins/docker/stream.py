"""An engine's stream to a container's standard input and output, as a connection for `Guest`."""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import struct
import threading
import time
from typing import Any

_HEADER = struct.Struct(">BxxxL")
_STDERR = 2
_COMPLAINTS = 4096  # the last bytes of standard error, at most so many, are kept
_CHUNK = 65536


class AttachedStream:
    """A hijacked HTTP connection. Incoming data is in frames of standard output and standard error, outgoing is plain.

    Attributes:
        complaints: the last part of the program's standard error.
    """

    def __init__(self, hijacked: Any) -> None:
        """`hijacked` is the SDK's result of an attach or an exec: a socket, or a stream over one."""
        self._hijacked = hijacked  # it closes the socket when it is collected
        self._socket: socket.socket = getattr(hijacked, "_sock", hijacked)
        self._header = b""
        self._left = 0  # remaining bytes of the present frame
        self._kind = 0
        self.complaints = b""

    def sendall(self, data: bytes | bytearray) -> None:
        self._socket.sendall(data)

    def recv(self, size: int) -> bytes:
        """Like `socket.recv`, of standard output only.

        Waits at most the time of `settimeout`, whatever else arrives.
        """
        deadline = math.inf if (timeout := self._socket.gettimeout()) is None else time.monotonic() + timeout
        while True:
            if not self._left and not self._next_frame():
                return b""
            chunk = self._socket.recv(min(size, self._left))
            self._left -= len(chunk)
            if self._kind != _STDERR or not chunk:
                return chunk
            self.complaints = (self.complaints + chunk)[-_COMPLAINTS:]
            if time.monotonic() > deadline:
                raise TimeoutError

    def settimeout(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        self._socket.shutdown(how)

    def close(self) -> None:
        """Ends the connection; the program in the container goes on."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._hijacked.close()
        self._socket.close()

    def bridge(self) -> socket.socket:
        """Returns a plain socket to the same program.

        A thread, which owns this object from then on, carries the bytes.
        """
        ours, theirs = socket.socketpair()
        self._socket.settimeout(None)
        threading.Thread(target=self._carry, args=(ours,), name="tvsnap-terminal", daemon=True).start()
        return theirs

    def _next_frame(self) -> bool:
        """Reads the next frame's header; a timeout within it loses nothing. Returns False at the end of the stream."""
        while not self._left:
            while len(self._header) < _HEADER.size:
                chunk = self._socket.recv(_HEADER.size - len(self._header))
                if not chunk:
                    return False
                self._header += chunk
            self._kind, self._left = _HEADER.unpack(self._header)
            self._header = b""
        return True

    def _carry(self, ours: socket.socket) -> None:
        with contextlib.closing(self), ours, selectors.PollSelector() as selector, contextlib.suppress(OSError):
            selector.register(ours, selectors.EVENT_READ, (ours.recv, self.sendall))
            selector.register(self._socket, selectors.EVENT_READ, (self.recv, ours.sendall))
            while True:
                for key, _ in selector.select():
                    receive, send = key.data
                    data = receive(_CHUNK)
                    if not data:
                        return
                    send(data)
