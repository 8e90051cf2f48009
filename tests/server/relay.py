"""A TCP relay to a server, by which connections are bad: pieces of what is sent are late, or connections are cut."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Sequence

from tests.server.conftest import Server

NEVER = 1 << 40  # bytes
LONGEST_PIECES = (1, 40, 65536)  # bytes, of those that are late


class Relay:
    """A relay.

    Attributes:
        url: where it listens.
        connections: how many there have been.
    """

    def __init__(self, server: Server, *, cuts: Sequence[int] = (), late: float = 0.0) -> None:
        """Connections are cut after so many bytes of answers (`cuts`); pieces come up to so many seconds `late`."""
        host, port = server.url.removeprefix("http://").split(":")
        self._to = (host, int(port))
        self._cuts, self._late = list(cuts), late
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Ends it."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.connections += 1
                far = socket.create_connection(self._to)
                cut = self._cuts.pop(0) if self._cuts else NEVER
                for source, target, left in ((near, far, NEVER), (far, near, cut)):
                    threading.Thread(target=self._move, args=(source, target, left), daemon=True).start()

    def _move(self, source: socket.socket, target: socket.socket, left: int) -> None:
        with contextlib.suppress(OSError):
            while left > 0 and (data := source.recv(min(left, self._longest()))):
                time.sleep(random.uniform(0, self._late))
                target.sendall(data)
                left -= len(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _longest(self) -> int:
        return random.choice(LONGEST_PIECES) if self._late else max(LONGEST_PIECES)
