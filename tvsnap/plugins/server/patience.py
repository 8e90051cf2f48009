"""Connections whose client does not go on are closed: with the head of a request, with its body, or with an answer."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from tvsnap.plugins.server.settings import ServerSettings

BODY_PIECE = 1024 * 1024
"""Bytes of a body for which a client has as long as for a whole one that is shorter."""
LONGEST_HEAD = 65_536
_TOO_SLOW, _TOO_LONG = b"408 Request Timeout", b"431 Request Header Fields Too Large"


class _Joined:
    """A transport that sends together what is written in one step of the loop: the head of an answer with its body."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """
        Args:
            transport: sends it.
            loop: its loop.
        """
        self._transport = transport
        self._loop = loop
        self._waiting = bytearray()
        self.abort = transport.abort
        self.get_extra_info = transport.get_extra_info
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.set_protocol = transport.set_protocol

    def write(self, data: bytes) -> None:
        """Sends something, with what is written until `flush`, or until the loop comes to it."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting += data
        if len(self._waiting) > HIGH_WATER_LIMIT:
            self.flush()

    def flush(self) -> None:
        """Sends what was written."""
        if self._waiting:
            self._transport.write(bytes(self._waiting))
            self._waiting.clear()

    def close(self) -> None:
        """Closes the connection once all was sent."""
        self.flush()
        self._transport.close()


class _TakenInTime(asyncio.Protocol):
    """A connection that is closed if its client takes nothing of what it is sent."""

    loop: asyncio.AbstractEventLoop
    transport: Any

    def __init__(self, *args: Any, settings: ServerSettings, **named: Any) -> None:
        """
        Args:
            settings: say how long a client has.
            args: positional arguments of uvicorn.
            named: named arguments of uvicorn.
        """
        super().__init__(*args, **named)
        self._patience = settings.patience
        self._taking: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends all waiting."""
        self._took()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begins to wait until the client takes what it is sent."""
        super().pause_writing()
        self._taking = self.loop.call_later(self._patience, self.transport.abort)

    def resume_writing(self) -> None:
        """Takes note that the client has taken something."""
        super().resume_writing()
        self._took()

    def _took(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None


class Patient(_TakenInTime, HttpToolsProtocol):
    """One connection. If there are too many, the one is closed that has been without a request for longest.

    Attributes:
        idle_since: when it began to be without a request, by time.monotonic(); None while one is being answered.
    """

    def __init__(self, *args: Any, settings: ServerSettings, **named: Any) -> None:
        """
        Args:
            settings: say how many connections there may be, and how long a client has.
            args: positional arguments of uvicorn.
            named: named arguments of uvicorn.
        """
        super().__init__(*args, settings=settings, **named)
        self._most = settings.max_connections
        self.idle_since: float | None = time.monotonic()
        self._coming: asyncio.TimerHandle | None = None
        self._head = self._body = 0
        self._longest = LONGEST_HEAD
        self._is_websocket = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a request."""
        self._joined = _Joined(transport, self.loop)
        super().connection_made(cast("asyncio.Transport", self._joined))
        self._wait_for_head()
        if len(self.connections) > self._most:
            others = (one for one in self.connections if isinstance(one, Patient) and one is not self)
            waiting = (one for one in others if not one.transport.is_closing())
            idle = [(one.idle_since, id(one), one) for one in waiting if one.idle_since is not None]
            if idle:
                min(idle)[2].transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends all waiting."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._came()

    def data_received(self, data: bytes) -> None:
        """Takes what a client sends."""
        self._head += len(data)
        super().data_received(data)
        if self.transport.is_closing() or self._is_websocket:
            return
        if self.idle_since is None:
            if self._coming is None and self.cycle.more_body:
                self._body = 0
                self._coming = self.loop.call_later(self._patience, self._look_at_body)
        elif self._head > self._longest:
            self._end(_TOO_LONG)
        elif self._coming is None:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        """Begins to answer a request."""
        self.idle_since = None
        self._came()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Takes a piece of a body."""
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Takes note that a request is there whole."""
        self._came()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Begins to wait for the next request."""
        self._joined.flush()
        super().on_response_complete()
        if self.cycle.response_complete:
            self.idle_since = time.monotonic()
            self._head = 0
            self._came()

    def handle_websocket_upgrade(self) -> None:
        """Leaves the connection to a `PatientSocket`."""
        self._is_websocket = True
        self._came()
        self._unset_keepalive_if_required()
        super().handle_websocket_upgrade()

    def _came(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None

    def _look_at_body(self) -> None:
        if self._body < BODY_PIECE and not self.flow.read_paused:  # or it is the server that does not go on
            self._end(_TOO_SLOW)
            return
        self._body = 0
        self._coming = self.loop.call_later(self._patience, self._look_at_body)

    def _wait_for_head(self) -> None:
        self._coming = self.loop.call_later(self._patience, self._end, _TOO_SLOW)

    def _end(self, status: bytes) -> None:
        if not self.transport.is_closing():
            answered = self.cycle is not None and self.cycle.response_started
            if self._head and not answered:  # who has sent nothing would take it for the answer to what comes
                self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()


class PatientSocket(_TakenInTime, WSProtocol):
    """One WebSocket."""
