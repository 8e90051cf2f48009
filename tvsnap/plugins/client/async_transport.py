"""Persistent connections to a server, for the tasks of one event loop; see `transport`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from tvsnap.plugins.client.connection import CONNECT_TIMEOUT, unreachable
from tvsnap.plugins.client.http import LONGEST_HEAD, Ask, Head, parse_head, read_answer, request_bytes
from tvsnap.plugins.client.liveness import CALL_S, LOOK_S, SHORT_S, Life, Silent
from tvsnap.plugins.client.retrying import Retrying, Waiting
from tvsnap.plugins.client.transport import IDLE_CONNECTIONS, Transport, limit_of
from tvsnap.plugins.client.wire.errors import Busy, Unreachable
from tvsnap.plugins.client.wire.tcp import notice_loss

T = TypeVar("T")
RECEIVED = 65_536
"""Bytes that are received at once."""


class AsyncConnection:
    """One connection, used by one task at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._since = 0.0  # the time at which data came, or a request was sent
        self._next_look: asyncio.TimerHandle | None = None

    def watch(self, life: Life, limit: float) -> None:
        """Has waits for the server fail once it shows no sign of life, until `rest`.

        Args:
            life: that of the server.
            limit: seconds without a sign of life after which the server is given up.
        """
        self._since = time.monotonic()
        self._look_later(life, limit)

    def rest(self) -> None:
        """Ends the effect of `watch`."""
        if self._next_look is not None:
            self._next_look.cancel()

    def _look_later(self, life: Life, limit: float) -> None:
        self._next_look = asyncio.get_running_loop().call_later(LOOK_S, self._look, life, limit)

    def _look(self, life: Life, limit: float) -> None:
        if time.monotonic() - self._since >= LOOK_S:
            try:
                life.check(self._since, limit)
            except Silent as error:
                self.reader.set_exception(error)
                self.writer.transport.abort()
                return
        self._look_later(life, limit)

    async def head(self) -> Head:
        """Returns the head of the next answer."""
        try:
            return parse_head((await self.reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n"))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise ConnectionError("the connection was closed") from None

    async def pieces(self, head: Head) -> AsyncIterator[bytes]:
        """Yields the body that follows a head."""
        try:
            remaining = head.length
            if remaining is not None:
                while remaining:
                    piece = await self.reader.read(min(remaining, 1 << 20))
                    if not piece:
                        raise ConnectionError("the connection was closed")
                    remaining -= len(piece)
                    self._since = time.monotonic()
                    yield piece
                return
            while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
                piece = await self.reader.readexactly(size + 2)
                self._since = time.monotonic()
                yield piece[:-2]
            await self.reader.readuntil(b"\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            raise ConnectionError("the connection was closed") from None

    def close(self) -> None:
        """Closes the connection."""
        self.rest()
        self.writer.close()


class AsyncTransport:
    """Requests to a server by the tasks of one event loop; blocking work is done by threads, with a `Transport`.

    Attributes:
        blocking: that `Transport`.
    """

    def __init__(self, blocking: Transport) -> None:
        """
        Args:
            blocking: the transport to the same server.
        """
        self.blocking = blocking
        self._idle_of: WeakKeyDictionary[asyncio.AbstractEventLoop, list[AsyncConnection]] = WeakKeyDictionary()

    @property
    def forked_off(self) -> bool:
        """See `Transport.forked_off`."""
        return self.blocking.forked_off

    @property
    def _idle(self) -> list[AsyncConnection]:
        """The idle connections of the running loop: another loop cannot use them."""
        self.blocking.check()
        return self._idle_of.setdefault(asyncio.get_running_loop(), [])

    async def do(self, work: Callable[[Transport], T]) -> T:
        """Returns the result of `work`, which blocks, and is done by a thread."""
        return await asyncio.to_thread(work, self.blocking)

    async def ask(self, ask: Ask) -> Any:
        """Returns the JSON answer to a request; see `Transport.ask`."""
        with self.blocking.answering(ask):
            data, waiting = self.blocking.request(ask), Waiting(self.blocking.patience)
            while True:
                try:
                    return read_answer(*await self._exchange(data, limit_of(ask)))
                except (Busy, Unreachable) as error:  # noqa: PERF203
                    await asyncio.sleep(waiting.pause_after(error))

    def close(self) -> None:
        """Closes the idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle_of.clear()

    async def _exchange(self, data: bytes, limit: float) -> tuple[int, bytes]:
        blocking = self.blocking
        blocking.check()
        if blocking.life.lost:
            await asyncio.to_thread(blocking.life.check_lost)
        retrying = Retrying(blocking.address, blocking.life)
        while True:
            try:
                async with self.connection(limit) as connection:
                    connection.writer.write(data)
                    head = await connection.head()
                    return head.status, b"".join([piece async for piece in connection.pieces(head)])
            except (OSError, Unreachable) as error:  # noqa: PERF203
                await asyncio.sleep(retrying.pause_after(error))

    @contextlib.asynccontextmanager
    async def connection(self, limit: float) -> AsyncIterator[AsyncConnection]:
        """A block with a connection, which others use after it; see `AsyncConnection.watch`."""
        idle = self._idle
        connection = idle.pop() if idle else await self.connect()
        connection.watch(self.blocking.life, limit)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        connection.rest()
        if len(idle) < IDLE_CONNECTIONS:
            idle.append(connection)
        else:
            connection.close()

    @contextlib.asynccontextmanager
    async def stream(self, method: str, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """A block with the body of an answer, in pieces, on a connection of its own; see `Transport.stream`."""
        connection, blocking = await self.connect(), self.blocking
        connection.watch(blocking.life, SHORT_S if method == "GET" else CALL_S)
        try:
            connection.writer.write(request_bytes(method, path, blocking.address, blocking.headers, None))
            head = await connection.head()
            if head.status >= 400:
                read_answer(head.status, b"".join([piece async for piece in connection.pieces(head)]))
            yield connection.pieces(head)
        finally:
            connection.close()

    async def connect(self) -> AsyncConnection:
        """Returns a new connection."""
        self.blocking.check()
        address = self.blocking.address
        if address.path:
            making = asyncio.open_unix_connection(address.path, limit=LONGEST_HEAD)
        else:  # asyncio itself has TCP send data at once (TCP_NODELAY)
            tls = self.blocking.tls
            making = asyncio.open_connection(address.host, address.port, limit=LONGEST_HEAD, ssl=tls)
        try:
            streams = await asyncio.wait_for(making, CONNECT_TIMEOUT)
        except asyncio.TimeoutError:  # no OSError before Python 3.11
            raise unreachable(address, TimeoutError("timed out")) from None
        except OSError as error:
            raise unreachable(address, error) from None
        if (connected := streams[1].get_extra_info("socket")) is not None:  # else it is closed
            notice_loss(connected)
        # By default 256 KiB, which the allocator may map, and unmap again, for each answer.
        setattr(streams[1].transport, "max_size", RECEIVED)  # noqa: B010 -- of asyncio's own transports alone
        return AsyncConnection(*streams)
