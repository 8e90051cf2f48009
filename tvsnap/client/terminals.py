"""Terminals of sandboxes elsewhere, which are joined by WebSocket: keys and the screen are binary messages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

from tvsnap.client.async_transport import AsyncConnection, AsyncTransport
from tvsnap.client.frames import LONGEST_MESSAGE, RESTARTS, Frames
from tvsnap.client.life import CALL_S
from tvsnap.client.transport import Connection, Transport, Waiting
from tvsnap.wire.errors import Busy


class TerminalState:
    """What a client knows of a terminal elsewhere."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._early: list[bytes | str] = []
        self._told: str | None = None

    @property
    def ended(self) -> str | None:
        """Why it has ended, as the server has said it.

        `shell` where the shell or the sandbox has ended, `server` where the server is being stopped; None where it goes
        on, was left, or the connection broke.
        """
        return "server" if self._frames.code == RESTARTS else self._told

    def _seen(self, messages: list[bytes | str]) -> bytes | None:
        """Returns what messages have the screen show; None at the end."""
        shown = bytearray()
        for message in messages:
            if isinstance(message, bytes):
                shown += message
            else:
                told: Any = json.loads(message)
                self._told = told.get("ended")
        return None if self._frames.closed and not shown else bytes(shown)

    def _keys(self, data: bytes) -> bytes:
        pieces = (data[at : at + LONGEST_MESSAGE] for at in range(0, len(data), LONGEST_MESSAGE))
        return b"".join(map(self._frames.message, pieces))

    def _size(self, columns: int, rows: int) -> bytes:
        return self._frames.message(json.dumps({"columns": columns, "rows": rows}))


class Terminal(TerminalState):
    """A terminal elsewhere, and a context manager that leaves it. It is used by one thread.

    The server closes a terminal of which nothing is received for some 40 seconds.
    """

    def __init__(self, connection: Connection, frames: Frames) -> None:
        """
        Args:
            connection: is used for nothing else; it is closed where the terminal is refused.
            frames: have not been opened.

        Raises:
            TvsnapError, OSError: what the server says.
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
        """Returns the descriptor to wait at for what `receive` returns."""
        return self._connection.fileno()

    def receive(self) -> bytes | None:
        """Returns what the screen is to show next, once anything has come: b"" for what is not shown; None at the end.

        Raises:
            ConnectionError: the connection broke.
        """
        if self._early:
            early, self._early = self._early, []
            return self._seen(early)
        return None if self._frames.closed else self._seen(self._take())

    def send(self, data: bytes) -> None:
        """Types bytes.

        Args:
            data: what a keyboard would send.

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
    """A terminal elsewhere, whose methods are awaited; see `Terminal`. One task receives, others may send."""

    def __init__(self, connection: AsyncConnection, frames: Frames) -> None:
        """
        Args:
            connection: is used for nothing else.
            frames: have not been opened.
        """
        super().__init__(frames)
        self._connection = connection

    async def open(self) -> AsyncTerminal:
        """Opens it; see `Terminal`. The connection is closed where the terminal is refused."""
        try:
            self._connection.writer.write(self._frames.opening)
            while not self._frames.accepted:
                self._early += await self._take()
        except BaseException:
            self._connection.close()
            raise
        return self

    async def receive(self) -> bytes | None:
        """Returns what the screen is to show next; see `Terminal.receive`."""
        if self._early:
            early, self._early = self._early, []
            return self._seen(early)
        return None if self._frames.closed else self._seen(await self._take())

    async def messages(self) -> list[bytes | str]:
        """Returns the next messages as they are; none where there are none among what has come, or at the end."""
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
        """Sends a message as it is."""
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
    """Returns the terminal that is at a path of a server; it waits for a server that is busy.

    Args:
        transport: the server's.
        path: the path with its query.

    Raises:
        TvsnapError, OSError: what the server says.
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
    """Returns the terminal that is at a path of a server; see `open_terminal`."""
    blocking = transport.blocking
    waiting = Waiting(blocking.patience)
    while True:
        connection = await transport.connect()
        connection.watch(blocking.life, CALL_S)
        try:
            return await AsyncTerminal(connection, Frames(blocking.address.authority, path, blocking.headers)).open()
        except Busy as error:
            await asyncio.sleep(waiting.pause_after(error))
