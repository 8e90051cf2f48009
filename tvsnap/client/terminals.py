"""Terminals of sandboxes elsewhere, which are joined by WebSocket: keys and the screen are binary messages."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tvsnap.client.transport import Connection
from tvsnap.client.wire import LONGEST_HEAD, read_answer
from tvsnap.wire.errors import Unreachable

if TYPE_CHECKING:
    from tvsnap.client.async_transport import AsyncConnection

RESTARTS = 1012  # the status of the protocol with which a server ends what it has open
LONGEST_MESSAGE = 65_536
"""Bytes of keys that are sent at once."""


class Frames:
    """A WebSocket without input or output, as the one has it who opens it.

    Attributes:
        opening: what is to be sent first.
        accepted: whether the server has joined it.
        closed: whether it has ended.
        code: with which status of the protocol.
    """

    def __init__(self, host: str, path: str, headers: Mapping[str, str]) -> None:
        """
        Args:
            host: what the header Host says.
            path: the path with its query.
            headers: further headers.
        """
        from wsproto import ConnectionType, WSConnection
        from wsproto.events import Request

        named = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        self._connection = WSConnection(ConnectionType.CLIENT)
        self.opening = self._connection.send(Request(host=host, target=path, extra_headers=named))
        self.accepted = self.closed = False
        self.code = 1011  # for a connection that breaks
        self._status = 0
        self._body = bytearray()
        self._text = ""

    def take(self, data: bytes) -> tuple[list[bytes | str], bytes]:
        """Returns the messages in what has come, and what is to be sent for that; nothing at the end of the connection.

        Raises:
            TvsnapError, OSError: the server refuses the terminal.
            ConnectionError: the connection was closed before the server has said anything.
        """
        from wsproto import events
        from wsproto.utilities import RemoteProtocolError

        if not data:
            if not self.accepted:
                raise ConnectionError("the connection was closed")
            self.closed = True
            return [], b""
        messages: list[bytes | str] = []
        reply = b""
        try:
            self._connection.receive_data(data)
            for event in self._connection.events():
                if isinstance(event, events.AcceptConnection):
                    self.accepted = True
                elif isinstance(event, events.RejectConnection):
                    self._status = event.status_code
                    if not event.has_body:
                        self._refused()
                elif isinstance(event, events.RejectData):
                    self._body += event.data
                    if len(self._body) > LONGEST_HEAD or event.body_finished:
                        self._refused()
                elif isinstance(event, events.BytesMessage):
                    messages.append(bytes(event.data))
                elif isinstance(event, events.TextMessage):
                    self._text += event.data
                    if event.message_finished:
                        messages.append(self._text)
                        self._text = ""
                elif isinstance(event, events.Ping):
                    reply += self._connection.send(event.response())
                elif isinstance(event, events.CloseConnection):
                    reply += self._connection.send(event.response())
                    self.closed, self.code = True, event.code
        except RemoteProtocolError:
            if self.accepted:
                raise ConnectionError("what came is no message of a WebSocket") from None
            raise Unreachable("what answered has no terminals; is this the server's address?") from None
        return messages, reply

    def message(self, data: bytes | str) -> bytes:
        """Returns a message as it is sent."""
        from wsproto.events import Message

        event: Any = Message(data=data)
        return bytes(self._connection.send(event))

    def goodbye(self) -> bytes:
        """Returns what is sent before the connection is closed, where that is not done by the server."""
        from wsproto.events import CloseConnection

        if self.closed or not self.accepted:
            return b""
        self.closed = True
        return bytes(self._connection.send(CloseConnection(code=1000)))

    def _refused(self) -> None:
        read_answer(self._status, bytes(self._body))
        raise Unreachable("what answered has no terminals; is this the server's address?")


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
