"""Persistent connections to a server, for the tasks of one event loop; see `transport`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from tvsnap.client.terminals import AsyncTerminal, Frames
from tvsnap.client.transport import IDLE_CONNECTIONS, TRIES, Transport, Waiting, broken, pause_after, unreachable
from tvsnap.client.wire import LONGEST_HEAD, Ask, Head, parse_head, read_answer, request_bytes
from tvsnap.wire.errors import Busy, Unreachable
from tvsnap.wire.tcp import notice_loss

T = TypeVar("T")


class AsyncConnection:
    """One connection, used by one task at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def head(self) -> Head:
        """Returns the head of the next answer."""
        try:
            return parse_head((await self.reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n"))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise ConnectionError("the connection was closed") from None

    async def pieces(self, head: Head) -> AsyncIterator[bytes]:
        """Yields the body that follows a head."""
        try:
            left = head.length
            if left is not None:
                while left:
                    piece = await self.reader.read(min(left, 1 << 20))
                    if not piece:
                        raise ConnectionError("the connection was closed")
                    left -= len(piece)
                    yield piece
                return
            while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
                yield (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readuntil(b"\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            raise ConnectionError("the connection was closed") from None

    def close(self) -> None:
        """Ends it."""
        self.writer.close()


class AsyncTransport:
    """A server, as the tasks of one event loop ask it; what blocks is done by threads, with a `Transport`.

    Attributes:
        blocking: that `Transport`.
    """

    def __init__(self, blocking: Transport) -> None:
        """
        Args:
            blocking: knows the server.
        """
        self.blocking = blocking
        self._idle_of: WeakKeyDictionary[asyncio.AbstractEventLoop, list[AsyncConnection]] = WeakKeyDictionary()

    @property
    def forked_off(self) -> bool:
        """See `Transport.forked_off`."""
        return self.blocking.forked_off

    @property
    def _idle(self) -> list[AsyncConnection]:
        """The connections that nobody uses, of the loop that is running: none is of use to another."""
        self.blocking.check()
        return self._idle_of.setdefault(asyncio.get_running_loop(), [])

    async def do(self, work: Callable[[Transport], T]) -> T:
        """Returns what `work` returns, which blocks, and is done by a thread."""
        return await asyncio.to_thread(work, self.blocking)

    async def ask(self, ask: Ask) -> Any:
        """Returns the JSON that a request is answered with; see `Transport.ask`."""
        data, waiting = self.blocking.request(ask), Waiting(self.blocking.patience)
        while True:
            try:
                return read_answer(*await self._exchange(data))
            except (Busy, Unreachable) as error:  # noqa: PERF203
                await asyncio.sleep(waiting.pause_after(error))

    def close(self) -> None:
        """Ends the connections that nobody uses."""
        for connection in self._idle:
            connection.close()
        self._idle_of.clear()

    async def _exchange(self, data: bytes) -> tuple[int, bytes]:
        for attempt in range(1, TRIES + 1):
            try:
                async with self.connection() as connection:
                    connection.writer.write(data)
                    head = await connection.head()
                    return head.status, b"".join([piece async for piece in connection.pieces(head)])
            except (OSError, Unreachable) as error:  # noqa: PERF203
                if attempt == TRIES:
                    if isinstance(error, Unreachable):
                        raise
                    raise broken(self.blocking.address, error) from None
                if attempt > 1:
                    await asyncio.sleep(pause_after(attempt))
        raise AssertionError("not reached")

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """A block with a connection, which others use after it."""
        idle = self._idle
        connection = idle.pop() if idle else await self._connect()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if len(idle) < IDLE_CONNECTIONS:
            idle.append(connection)
        else:
            connection.close()

    @contextlib.asynccontextmanager
    async def stream(self, method: str, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """A block with the body of an answer, in pieces, on a connection of its own; see `Transport.stream`."""
        connection, blocking = await self._connect(), self.blocking
        try:
            connection.writer.write(request_bytes(method, path, blocking.address, blocking.headers, None))
            head = await connection.head()
            if head.status >= 400:
                read_answer(head.status, b"".join([piece async for piece in connection.pieces(head)]))
            yield connection.pieces(head)
        finally:
            connection.close()

    async def terminal(self, path: str) -> AsyncTerminal:
        """Returns the terminal that is at a path; see `Transport.terminal`."""
        waiting, blocking = Waiting(self.blocking.patience), self.blocking
        while True:
            connection = await self._connect()
            try:
                return await AsyncTerminal(
                    connection, Frames(blocking.address.authority, path, blocking.headers)
                ).open()
            except Busy as error:
                await asyncio.sleep(waiting.pause_after(error))

    async def _connect(self) -> AsyncConnection:
        self.blocking.check()
        address = self.blocking.address
        try:  # asyncio itself has TCP send what it is given at once (TCP_NODELAY)
            if address.path:
                made = await asyncio.open_unix_connection(address.path, limit=LONGEST_HEAD)
            else:
                made = await asyncio.open_connection(
                    address.host, address.port, limit=LONGEST_HEAD, ssl=self.blocking.tls
                )
        except OSError as error:
            raise unreachable(address, error) from None
        notice_loss(made[1].get_extra_info("socket"))
        return AsyncConnection(*made)
