"""Restores TIME_WAIT in forks: a port that was recently in use stays unavailable as long as it would have been.

CRIU restores no connection that belongs to no process any more. So a snapshot notes those of a sandbox, and a fork
makes them again: two sockets are set up as the ends of a connection without sending packets (TCP_REPAIR), then one is
closed before the other. The kernel keeps each such port for a minute from then on; a port that has less left is freed
by us in time.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import os
import socket
import struct
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvsnap.model.errors import InfrastructureError, NotCheckpointable
from tvsnap.sandboxes.kernel.borrowing import borrowed
from tvsnap.sandboxes.kernel.namespaces import in_network_of
from tvsnap.sandboxes.kernel.procfs import sockets
from tvsnap.sandboxes.looks import connections
from tvsnap.sandboxes.looks.connections import TIME_WAIT, Connection
from tvsnap.sandboxes.repairs import tcp_repair

_MOST = 100
"""With more a state has no snapshot: recreating them takes half a millisecond each."""
_SEQUENCE = 1 << 20
_ANSWER_TIMEOUT, _PAUSE = 5.0, 0.01
"""Seconds."""
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
_DROP_ALL = struct.pack("=HBBI", 6, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Closed:
    """A connection in TIME_WAIT.

    Attributes:
        family: of its socket.
        local, remote: address and port.
        left: seconds for which it keeps its port.
        reuse, reuse_port: its socket's SO_REUSEADDR and SO_REUSEPORT.
    """

    family: int
    local: tuple[str, int]
    remote: tuple[str, int]
    left: float
    reuse: bool
    reuse_port: bool

    @classmethod
    def from_json(cls, about: Mapping[str, Any]) -> Closed:
        """Raises KeyError, TypeError or ValueError if `about` is no such connection."""
        return cls(**{**about, "local": tuple(about["local"]), "remote": tuple(about["remote"])})


class TimeWaits:
    """The connections of one sandbox that end by themselves, including those restored from a snapshot."""

    def __init__(self, init: int) -> None:
        """`init` is the sandbox's PID 1, as the host sees it."""
        self._init = init
        self._ends: dict[int, float] = {}  # time.monotonic() at which we end a connection, by its cookie
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._closed = False

    def passing(self) -> list[Connection]:
        """Returns the connections in the sandbox that end by themselves; see `present`."""
        return [one for one in self.present() if one.seconds_left < math.inf and not one.leads_out]

    def present(self) -> list[Connection]:
        """See `connections.present`."""
        closed = connections.present(self._init)
        now = time.monotonic()
        return [
            replace(one, seconds_left=max(0.0, min(one.seconds_left, self._ends[one.cookie] - now)))
            if one.cookie in self._ends
            else one
            for one in closed
        ]

    def note(self, pids: Collection[int], present: Sequence[Connection] | None = None) -> list[Closed]:
        """Returns the connections in TIME_WAIT that a fork must have; raises NotCheckpointable if that is impossible.

        None of the sandbox's processes `pids` runs meanwhile; `present` has its connections if they are known.
        """
        waiting = self.passing() if present is None else [one for one in present if not one.leads_out]
        if not waiting:
            return []
        for one in waiting:
            if one.state != TIME_WAIT or one.local == one.remote:
                raise NotCheckpointable(f"{one}, which CRIU does not bring back")
        if len(waiting) > _MOST:
            raise NotCheckpointable(
                f"{len(waiting)} TCP connections wait for their time to pass (TIME_WAIT), and {_MOST} are kept at most"
            )
        if not in_network_of(self._init, connections.can_end):
            raise NotCheckpointable(f"{waiting[0]}, which this kernel cannot end in time in a fork")
        listening = in_network_of(self._init, connections.listening)
        flags = {}
        for port in {one.local[1] for one in waiting}:
            inodes = {one.inode for one in listening if one.local[1] == port}
            flags[port] = self._allowed([one for one in waiting if one.local[1] == port], inodes, pids)
        return [Closed(one.family, one.local, one.remote, one.seconds_left, *flags[one.local[1]]) for one in waiting]

    def _allowed(self, closed: list[Connection], listening: set[int], pids: Collection[int]) -> tuple[bool, bool]:
        """Returns SO_REUSEADDR and SO_REUSEPORT of the socket that still listens at a port, else found by binding."""
        if listening:
            for inode, pid, number in sockets(pids):
                if inode in listening:
                    return _flags(pid, number)
            raise NotCheckpointable(f"{closed[0]}, and nobody is known to listen there")
        return in_network_of(
            self._init, lambda: (_may_bind(closed, reuse=True, port=False), _may_bind(closed, reuse=False, port=True))
        )

    def bring_back(self, noted: Iterable[Closed]) -> None:
        """Recreates noted connections, and ends them in time; raises InfrastructureError if that fails."""
        noted = [one for one in noted if one.left > 0]
        if not noted:
            return
        try:
            present = in_network_of(self._init, lambda: _make(noted))
        except OSError as error:
            raise InfrastructureError(f"TIME_WAIT could not be brought back in a fork: {error.strerror}") from None
        seconds = {(one.local, one.remote): one.left for one in noted}
        now = time.monotonic()
        with self._lock:
            self._ends = {
                one.cookie: now + seconds[one.local, one.remote]
                for one in present
                if (one.local, one.remote) in seconds
            }
        self._await()

    def close(self) -> None:
        """Forgets the connections; the sandbox has ended."""
        with self._lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()

    def _await(self) -> None:
        with self._lock:
            if self._ends and not self._closed:
                pause = max(0.0, min(self._ends.values()) - time.monotonic())
                self._timer = threading.Timer(pause, self._end_those_due)
                self._timer.daemon = True
                self._timer.start()

    def _end_those_due(self) -> None:
        now = time.monotonic()
        with self._lock:
            due = {cookie for cookie, end in self._ends.items() if end <= now}
        with contextlib.suppress(OSError):  # the sandbox has ended
            in_network_of(self._init, lambda: connections.end(due))
        with self._lock:
            for cookie in due:
                del self._ends[cookie]
        self._await()


def _flags(pid: int, number: int) -> tuple[bool, bool]:
    with borrowed(pid, number) as descriptor, socket.socket(fileno=os.dup(descriptor)) as sock:
        return tuple(
            bool(sock.getsockopt(socket.SOL_SOCKET, one)) for one in (socket.SO_REUSEADDR, socket.SO_REUSEPORT)
        )  # type: ignore[return-value]


def _may_bind(closed: Iterable[Connection], *, reuse: bool, port: bool) -> bool:
    """Whether sockets with these options can bind to the addresses of closed connections now."""
    for one in closed:
        with socket.socket(one.family, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, port)
            try:
                sock.bind(one.local)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
                raise
    return True


def _make(noted: list[Closed]) -> list[Connection]:
    """Makes connections in this thread's network namespace and returns all that are in TIME_WAIT once these are."""
    both = {(one.local, one.remote): one for one in noted}
    while both:
        (local, remote), one = both.popitem()
        other = both.pop((remote, local), None)
        with _end(one) as first, _end(other or _turned(one)) as second:
            for sock, about in ((first, one), (second, other)):
                tcp_repair.end(sock)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, about is not None and about.reuse)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, about is not None and about.reuse_port)
            if other:  # both ends were closed at once: neither had received the other's FIN
                # The first end retransmits its FIN, and does so soon once it has measured the round-trip time.
                second.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                first.settimeout(_ANSWER_TIMEOUT)
                second.settimeout(_ANSWER_TIMEOUT)
                first.sendall(b"?")
                second.recv(1)
                _deafen(second)
                first.shutdown(socket.SHUT_WR)
                second.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)
                second.shutdown(socket.SHUT_WR)
            else:
                first.shutdown(socket.SHUT_WR)
                second.close()
    deadline = time.monotonic() + _ANSWER_TIMEOUT
    while True:
        present = [one for one in connections.connections() if one.state == TIME_WAIT]
        if {(one.local, one.remote) for one in noted} <= {(one.local, one.remote) for one in present}:
            return present
        if time.monotonic() > deadline:
            raise TimeoutError(errno.ETIMEDOUT, "a connection was not closed in time")
        time.sleep(_PAUSE)


def _turned(one: Closed) -> Closed:
    return replace(one, local=one.remote, remote=one.local)


def _end(one: Closed) -> socket.socket:
    """Returns one end of a connection, which is made without a handshake."""
    # Each end needs the other's sequence number, so both derive them from the order of the addresses.
    numbers = (_SEQUENCE, 2 * _SEQUENCE) if one.local < one.remote else (2 * _SEQUENCE, _SEQUENCE)
    sock = socket.socket(one.family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        terms = tcp_repair.Terms()
        sent, received = numbers
        tcp_repair.connect(
            sock, one.local, one.remote, sent=sent, received=received, terms=terms.to_bytes(terms.segment)
        )
    except BaseException:
        sock.close()
        raise
    return sock


def _deafen(sock: socket.socket) -> None:
    """Makes a socket drop all packets that it receives."""
    code = ctypes.create_string_buffer(_DROP_ALL)
    sock.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("@HP", 1, ctypes.addressof(code)))
