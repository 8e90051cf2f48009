"""Recreates TCP connections that `tcp.py` noted, in a fork before any of its processes runs."""

from __future__ import annotations

import base64
import contextlib
import errno
import select
import socket
from collections.abc import Iterable, Iterator

from tvsnap.host.attempts import AttemptFailed
from tvsnap.sandboxes.kernel.borrowing import borrowed
from tvsnap.sandboxes.kernel.namespaces import in_network_of
from tvsnap.sandboxes.kernel.procfs import insiders
from tvsnap.sandboxes.repairs import tcp_repair
from tvsnap.sandboxes.repairs.tcp import WINDOW_CLAMP, End, Kept

_NUMBER = 1 << 20
"""The sequence number at which one end starts; the other starts at twice that."""
_LARGEST_SETTABLE = 32767
"""Bytes of a segment."""
_ANSWER_TIMEOUT = 5.0
"""Seconds."""
_LINGER = 8  # TCP_LINGER2


def bring_back(init: int, pids: Iterable[int], pairs: Iterable[Kept]) -> None:
    """Recreates connections in a sandbox before its processes run; `pids` may include other sandboxes'.

    Raises AttemptFailed if that fails.
    """
    inside = insiders(init, pids)
    try:
        in_network_of(init, lambda: _make_all(inside, list(pairs)))
    except (OSError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) else "one of its processes is not there"
        raise AttemptFailed(f"TCP connections could not be brought back in a fork: {reason}") from None


def _make_all(pids: dict[int, int], pairs: list[Kept]) -> None:
    for one in sorted(pairs, key=lambda one: one.queue):
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(_socket_of(one.first, pids))
            if one.queue >= 0:
                _ask_for(one, first)
            else:
                _make(one, first, stack.enter_context(_socket_of(one.second, pids)))


@contextlib.contextmanager
def _socket_of(end: End, pids: dict[int, int]) -> Iterator[socket.socket]:
    """Yields the socket that is to become an end: a process' socket, or a new one."""
    if end.holder is None:
        with socket.socket(end.family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock:
            yield sock
        return
    pid, number = end.holder
    with borrowed(pids[pid], number) as descriptor, tcp_repair.duplicate(descriptor) as sock:
        tcp_repair.disconnect(sock)  # CRIU has shut it down
        yield sock


def _make(one: Kept, first: socket.socket, second: socket.socket) -> None:
    """Makes two sockets the ends of a connection."""
    unread = [base64.b64decode(end.unread) for end in (one.first, one.second)]
    _join(first, one.first, one.second, sent=_NUMBER + len(unread[1]), received=2 * _NUMBER, unread=unread[0])
    _join(second, one.second, one.first, sent=2 * _NUMBER + len(unread[0]), received=_NUMBER, unread=unread[1])
    for sock in (first, second):
        tcp_repair.end(sock)
    for sock, end in ((first, one.first), (second, one.second)):
        _allow(sock, end)
    for sock, other, end in ((first, second, one.first), (second, first, one.second)):
        _go_on(sock, other, end)
    if one.gone:  # no packet is sent to the other end
        tcp_repair.begin(second)


def _join(sock: socket.socket, end: End, other: End, *, sent: int, received: int, unread: bytes) -> None:
    if end.terms.segment <= _LARGEST_SETTABLE:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, end.terms.segment)
    terms = end.terms.to_bytes(other.terms.segment)
    tcp_repair.connect(sock, end.address, end.peer, sent=sent, received=received, terms=terms)
    if end.timestamp:
        tcp_repair.set_timestamp(sock, end.timestamp)
    if end.window:
        sock.setsockopt(socket.IPPROTO_TCP, WINDOW_CLAMP, end.window)
    if unread:
        tcp_repair.receive(sock, unread)


def _allow(sock: socket.socket, end: End) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, end.reuse)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, end.reuse_port)


def _go_on(sock: socket.socket, other: socket.socket | None, end: End) -> None:
    """Sends the data of an end that did not arrive at the other, and closes the end if it was closed."""
    if end.unsent:
        tcp_repair.send(sock, base64.b64decode(end.unsent))
    if end.deaf:
        sock.shutdown(socket.SHUT_RD)
    if not end.closed:
        return
    sock.shutdown(socket.SHUT_WR)
    if end.left:  # then the kernel drops it after that time, to within a second
        sock.setsockopt(socket.IPPROTO_TCP, _LINGER, max(1, round(end.left)))
    if other is not None and not end.unsent:
        _wait_for_end(other)


def _wait_for_end(sock: socket.socket) -> None:
    """Waits until a socket has received that its other end was closed."""
    hears = select.poll()
    hears.register(sock, select.POLLRDHUP)
    if not hears.poll(_ANSWER_TIMEOUT * 1000):
        raise TimeoutError(errno.ETIMEDOUT, "an end of a connection did not hear that the other was closed")


def _ask_for(one: Kept, sock: socket.socket) -> None:
    """Makes a connection that waits to be accepted by an ordinary connect() to the listening other end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # other connections may use the port
    sock.bind(one.first.address)
    with contextlib.suppress(BlockingIOError):
        sock.connect(one.first.peer)
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    if not poll.poll(_ANSWER_TIMEOUT * 1000):
        raise TimeoutError(errno.ETIMEDOUT, "a connection was not made in time")
    _allow(sock, one.first)
    _go_on(sock, None, one.first)
