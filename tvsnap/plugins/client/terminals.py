"""Terminals of a server's sandboxes by WebSocket: keys and the screen are binary messages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

from tvsnap.plugins.client.async_transport import AsyncConnection, AsyncTransport
from tvsnap.plugins.client.connection import Connection
from tvsnap.plugins.client.frames import LONGEST_MESSAGE, RESTARTS, Frames
from tvsnap.plugins.client.liveness import CALL_S
from tvsnap.plugins.client.retrying import Waiting
from tvsnap.plugins.client.transport import Transport
from tvsnap.plugins.client.wire.errors import Busy


class TerminalState:
    """The client's view of a server's terminal."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._early: list[bytes | str] = []
        self._end: str | None = None

    @property
    def ended(self) -> str | None:
        """The server's reason why it has ended.

        `shell` if the shell or the sandbox has ended, `server` if the server is being stopped; None if it goes on, was
        left, or the connection broke.
        """
        return "server" if self._frames.code == RESTARTS else self._end

    def _screen(self, messages: list[bytes | str]) -> bytes | None:
        """Returns the bytes for the screen in messages; None at the end."""
        shown = bytearray()
        for message in messages:
            if isinstance(message, bytes):
                shown += message
            else:
                event: Any = json.loads(message)
                self._end = event.get("ended")
        return None if self._frames.closed and not shown else bytes(shown)

    def _keys(self, data: bytes) -> bytes:
        pieces = (data[at : at + LONGEST_MESSAGE] for at in range(0, len(data), LONGEST_MESSAGE))
        return b"".join(map(self._frames.message, pieces))

    def _size(self, columns: int, rows: int) -> bytes:
        return self._frames.message(json.dumps({"columns": columns, "rows": rows}))


class Terminal(TerminalState):
    """A server's terminal, and a context manager that leaves it. It is used by one thread.

    The server closes a terminal of which nothing is received for some 40 seconds.
    """

    def __init__(self, connection: Connection, frames: Frames) -> None:
        """
        Args:
            connection: is used for nothing else; it is closed if the terminal is refused.
            frames: have not been opened.

        Raises:
            TvsnapError, OSError: the server's error.
        """
        super().__init__(frames)
        self._connection = connection
        try:
            connection.send(frames.opening)
            while not frames.accepted:
                self._early += self._take()
        except BaseException:
            connection.close()
            raise

    def fileno(self) -> int:
        """Returns the descriptor at which to wait before `receive`."""
        return self._connection.fileno()

    def receive(self) -> bytes | None:
        """Returns the next bytes for the screen, once any message has come: b"" if it has none; None at the end.

        Raises:
            ConnectionError: the connection broke.
        """
        if self._early:
            early, self._early = self._early, []
            return self._screen(early)
        return None if self._frames.closed else self._screen(self._take())

    def send(self, data: bytes) -> None:
        """Types bytes.

        Args:
            data: the bytes of a keyboard.

        Raises:
            ConnectionError: the connection broke.
        """
        self._connection.send(self._keys(data))

    def resize(self, columns: int, rows: int) -> None:
        """Sets the size of the terminal.

        Args:
            columns: its width in cells.
            rows: its height in cells.
        """
        self._connection.send(self._size(columns, rows))

    def close(self) -> None:
        """Leaves the terminal. It may be called more than once."""
        with contextlib.suppress(OSError):
            self._connection.send(self._frames.goodbye())
        self._connection.close()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self) -> list[bytes | str]:
        messages, reply = self._frames.take(self._connection.some())
        if reply:
            self._connection.send(reply)
        return messages


class AsyncTerminal(TerminalState):
    """A server's terminal, with awaited methods; see `Terminal`. One task receives, others may send."""

    def __init__(self, connection: AsyncConnection, frames: Frames) -> None:
        """
        Args:
            connection: is used for nothing else.
            frames: have not been opened.
        """
        super().__init__(frames)
        self._connection = connection

    async def open(self) -> AsyncTerminal:
        """Opens it; see `Terminal`. The connection is closed if the terminal is refused."""
        try:
            self._connection.writer.write(self._frames.opening)
            while not self._frames.accepted:
                self._early += await self._take()
        except BaseException:
            self._connection.close()
            raise
        return self

    async def receive(self) -> bytes | None:
        """Returns the next bytes for the screen; see `Terminal.receive`."""
        if self._early:
            early, self._early = self._early, []
            return self._screen(early)
        return None if self._frames.closed else self._screen(await self._take())

    async def messages(self) -> list[bytes | str]:
        """Returns the next messages unchanged; none if the received data has no complete one, or at the end."""
        early, self._early = self._early, []
        return early or await self._take()

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self._frames.closed

    @property
    def code(self) -> int:
        """The status of the protocol with which it has ended."""
        return self._frames.code

    async def send(self, data: bytes) -> None:
        """Types bytes; see `Terminal.send`."""
        await self._send(self._keys(data))

    async def pass_on(self, message: bytes | str) -> None:
        """Sends a message unchanged."""
        await self._send(self._frames.message(message))

    async def resize(self, columns: int, rows: int) -> None:
        """Sets the size of the terminal; see `Terminal.resize`."""
        await self._send(self._size(columns, rows))

    async def close(self) -> None:
        """Leaves the terminal. It may be called more than once."""
        with contextlib.suppress(OSError):
            await self._send(self._frames.goodbye())
        self._connection.close()

    async def __aenter__(self) -> AsyncTerminal:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _take(self) -> list[bytes | str]:
        messages, reply = self._frames.take(await self._connection.reader.read(LONGEST_MESSAGE))
        if reply:
            await self._send(reply)
        return messages

    async def _send(self, data: bytes) -> None:
        self._connection.writer.write(data)
        await self._connection.writer.drain()


def open_terminal(transport: Transport, path: str) -> Terminal:
    """Returns the terminal at a path of a server; it waits for a server that is busy.

    Args:
        transport: that of the server.
        path: the path with its query.

    Raises:
        TvsnapError, OSError: the server's error.
        Unreachable: there is no server.
    """
    waiting = Waiting(transport.patience)
    while True:
        connection = transport.connect()
        try:
            return Terminal(connection, Frames(transport.address.authority, path, transport.headers))
        except Busy as error:
            time.sleep(waiting.pause_after(error))


async def async_open_terminal(transport: AsyncTransport, path: str) -> AsyncTerminal:
    """Returns the terminal at a path of a server; see `open_terminal`."""
    blocking = transport.blocking
    waiting = Waiting(blocking.patience)
    while True:
        connection = await transport.connect()
        connection.watch(blocking.life, CALL_S)
        try:
            return await AsyncTerminal(connection, Frames(blocking.address.authority, path, blocking.headers)).open()
        except Busy as error:
            await asyncio.sleep(waiting.pause_after(error))
