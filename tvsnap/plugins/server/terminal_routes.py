"""Terminals, by WebSocket: of a sandbox that a client holds, and of a fork of a state that ends with its connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from tvsnap.model.errors import TvsnapError, UsageError
from tvsnap.plugins.server import bodies
from tvsnap.plugins.server.bodies import decode
from tvsnap.plugins.server.held import HeldSandbox
from tvsnap.plugins.server.http import Operation, end_of_server, error_response, logger, number_of
from tvsnap.plugins.server.sandbox_routes import make_sandboxes
from tvsnap.plugins.server.service import Service
from tvsnap.plugins.server.tenants import tenant_of

_SIZE = bodies.decoder(bodies.Size)
SHOWN_AT_ONCE = 65_536
"""Bytes that are read of a sandbox before the client has taken those that came before."""
_FAILED, _SENSELESS = 1011, 1008  # statuses of the WebSocket protocol

Join = Callable[[WebSocket], Awaitable[None]]


class TerminalRoutes:
    """Operations that join terminals."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def _joins(self) -> Mapping[str, tuple[str, str, Join]]:
        return {
            "/v1/states/{state}/terminal": ("openTerminal", "Opens a terminal in a fork of a state.", self.fork),
            "/v1/sandboxes/{id}/attach": ("attach", "Opens the terminal of a sandbox.", self.attach),
        }

    @property
    def operations(self) -> list[Operation]:
        """As requests of HTTP: what asks for no WebSocket is told to."""
        size = {"columns": "the width of the terminal in cells", "rows": "its height"}
        return [
            Operation("GET", path, name, f"{words} It is a WebSocket.", self.explain, query=size)
            for path, (name, words, _) in self._joins.items()
        ]

    @property
    def sockets(self) -> dict[str, Socket]:
        """The handlers of WebSockets, by path."""
        return {path: Socket(self._service, path, join) for path, (_, _, join) in self._joins.items()}

    async def explain(self, _: Request) -> Response:
        """Tells that this is a WebSocket."""
        response = error_response(UsageError("a terminal is a WebSocket: ask for one by the header Upgrade"), 426)
        response.headers["upgrade"] = "websocket"
        response.headers["connection"] = "Upgrade"
        return response

    async def fork(self, websocket: WebSocket) -> None:
        """Joins the terminal of a fork of a state, which ends with the connection."""
        service, tenant = self._service, tenant_of(websocket)
        state, size = await service.owned(websocket), _size_of(websocket)
        service.check_going(held=False)
        (handle,) = await make_sandboxes(service, state, bodies.Materialise(), tenant)
        try:
            await self._join(websocket, handle, size)
        finally:
            await asyncio.shield(asyncio.ensure_future(service.sandboxes.end(handle.id)))

    async def attach(self, websocket: WebSocket) -> None:
        """Joins the terminal of a sandbox, which goes on when the connection ends; nothing else uses it meanwhile."""
        handle = self._service.sandboxes.find(websocket.path_params["id"], tenant_of(websocket))
        self._service.check_going(held=True)
        await self._join(websocket, handle, _size_of(websocket))

    async def _join(self, websocket: WebSocket, handle: HeldSandbox, size: tuple[int, int]) -> None:
        async with handle.turn():
            with handle.in_use():
                attach = handle.sandbox.sandbox.attach
                stream = await self._service.executed(partial(attach, *size))
                with contextlib.closing(stream):
                    stream.setblocking(False)
                    await websocket.accept()
                    await self._exchange(websocket, handle, stream)

    async def _exchange(self, websocket: WebSocket, handle: HeldSandbox, stream: socket.socket) -> None:
        """Copies in both directions until one side ends."""
        typing = asyncio.ensure_future(self._type(websocket, handle, stream))
        showing = asyncio.ensure_future(_show(websocket, stream))
        try:
            await asyncio.wait({typing, showing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (typing, showing):
                one.cancel()
            await asyncio.wait({typing, showing})
        if not typing.cancelled():
            typing.result()
        elif not showing.cancelled():
            showing.result()
            await websocket.send_text(json.dumps({"ended": "shell"}))
            await websocket.close()

    async def _type(self, websocket: WebSocket, handle: HeldSandbox, stream: socket.socket) -> None:
        """Types what the client sends, and sets the size that it tells, until it leaves."""
        loop = asyncio.get_running_loop()
        attach = handle.sandbox.sandbox.attach
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            keys = message.get("bytes")
            if keys is not None:
                with contextlib.suppress(ConnectionError):  # `_show` sees the end of it
                    await loop.sock_sendall(stream, keys)
                continue
            size = decode(_SIZE, message["text"].encode())
            # Another attachment brings the size: this one is a stream of bytes by now.
            (await self._service.executed(partial(attach, size.columns, size.rows))).close()


class Socket:
    """The handler of a WebSocket at one path, as an ASGI application."""

    def __init__(self, service: Service, path: str, join: Join) -> None:
        self._service = service
        self._path = path
        self._join = join

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Joins a terminal, or refuses to, as a request is refused."""
        scope["route"] = self._path
        joined = False

        async def sending(message: object) -> None:
            nonlocal joined
            joined = joined or message["type"] == "websocket.accept"  # type: ignore[index]
            await send(message)  # type: ignore[arg-type]

        websocket = WebSocket(scope, receive, sending)
        with contextlib.suppress(WebSocketDisconnect, OSError):  # the client has gone
            try:
                await self._join(websocket)
            except asyncio.CancelledError:  # only a server that is stopped does that
                stopped = end_of_server(held="id" in scope["path_params"])
                self._service.metrics.refuse(stopped)
                if not joined:  # else uvicorn has said so by the status 1012
                    await error_response(stopped)(scope, receive, send)
            except WebSocketDisconnect:
                raise
            except Exception as error:
                self._service.metrics.refuse(error)
                if not isinstance(error, (TvsnapError, OSError)):
                    logger.exception("a terminal failed")
                if not joined:
                    await error_response(error)(scope, receive, send)
                    return
                reason = str(error).encode()[:120].decode("utf-8", "ignore")  # a close frame has room for 123 bytes
                await websocket.close(_SENSELESS if isinstance(error, UsageError) else _FAILED, reason)


async def _show(websocket: WebSocket, stream: socket.socket) -> None:
    """Sends what the sandbox sends to its terminal, as fast as the client takes it, until the sandbox ends it."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionError):
        while data := await loop.sock_recv(stream, SHOWN_AT_ONCE):
            await websocket.send_bytes(data)


def _size_of(connection: HTTPConnection) -> tuple[int, int]:
    """Returns the size that the query tells; raises UsageError if it is none."""
    numbers = {name: number_of(connection, name) for name in ("columns", "rows")}
    size = {name: number for name, number in numbers.items() if number is not None}
    chosen = decode(_SIZE, bodies.encode(size))
    return chosen.columns, chosen.rows
