"""Detects that the other end of a TCP connection has gone without closing it."""

from __future__ import annotations

import socket

SILENT, BETWEEN, PROBES = 15, 5, 4
"""Seconds without a packet until the first probe, seconds between probes, and unanswered probes before the end."""
_OPTIONS = {
    "TCP_KEEPIDLE": SILENT,
    "TCP_KEEPALIVE": SILENT,  # the same, on macOS
    "TCP_KEEPINTVL": BETWEEN,
    "TCP_KEEPCNT": PROBES,
    "TCP_USER_TIMEOUT": 1000 * (SILENT + BETWEEN * PROBES),  # for data that was sent and never acknowledged
}


def notice_loss(connection: socket.socket) -> None:
    """Has a connection end with an error about 35 s after the other end or the way to it has gone.

    By default, the kernel sends probes after two hours only. Connections inherit this from their listening socket.

    Args:
        connection: a socket; one that is not of TCP is not changed.
    """
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
