"""Requests and answers: operations by path and method, bodies within limits, and errors as JSON."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tvsnap.model.errors import Forbidden, InfrastructureError, TvsnapError, UsageError
from tvsnap.plugins.client.wire.errors import (
    Busy,
    ServerStopped,
    Stopping,
    TooLarge,
    Unauthorized,
    error_data,
    meaning_of,
)
from tvsnap.plugins.server.bodies import ErrorAnswer, encode
from tvsnap.plugins.server.metrics import Metrics
from tvsnap.plugins.server.settings import ServerSettings, is_loopback
from tvsnap.plugins.server.tenants import Tenant

KEY_HEADER = "idempotency-key"
RECEIVED_HEADER = "tvsnap-received"
"""The keys of earlier requests about the same rollout or sandbox whose answers have come, between commas."""
SECRET_HEADER = b"tvsnap-worker"
REQUESTS = ("http", "websocket")
"""The kinds of scope of ASGI by which a client asks for something."""
LARGEST = 2**63 - 1
"""The largest number that the graph's database knows."""
READ_ON = 5.0
"""Seconds for which the rest of a body is read that is too large."""
PAGE = "/page/"
"""Below this path are the files of the page."""
OPEN_PATHS = ("/", "/healthz", "/readyz")
"""What is answered without a token: load balancers have none, and the page asks its reader for one."""
BROWSER_PROTOCOL = "tvsnap"
"""The subprotocol by which a page opens a WebSocket."""
BROWSER_TOKEN = "tvsnap.token."
"""What the subprotocol begins with whose rest is a page's token in base 64: pages can send no header."""

logger = logging.getLogger("tvsnap.server")

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Operation:
    """What is done for one method at one path.

    Attributes:
        method: the method of HTTP.
        path: the path, with the names of its parameters in braces.
        name: the operation's name, unique: `operationId` of the OpenAPI document.
        summary: what it does, in one line.
        handler: does it.
        body: the type of what the request holds; None for nothing, a media type for other than JSON.
        answer: the type of what is answered; a media type for other than JSON, None for JSON of any kind.
        error: the type of what is answered where it fails; None for what no type describes.
        query: the query's parameters, by name, with what each says.
        of_all: it tells of all clients, or changes something for all: tenants may not do it.
    """

    method: str
    path: str
    name: str
    summary: str
    handler: Handler = field(repr=False)
    body: type[Any] | str | None = None
    answer: type[Any] | str | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    error: type[Any] | None = ErrorAnswer
    of_all: bool = False


class Endpoint:
    """The operations of one path, as an ASGI application."""

    def __init__(self, operations: Sequence[Operation], metrics: Metrics) -> None:
        self._path = operations[0].path
        self._by_method = {operation.method: operation for operation in operations}
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        scope["route"] = self._path
        operation = self._by_method.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if operation is None:
            have = ", ".join(sorted(self._by_method))
            response = error_response(UsageError(f"{scope['path']} has no {scope['method']}; it has: {have}"), 405)
            response.headers["allow"] = have
        else:
            try:
                if operation.of_all and scope.get("tenant") is not None:
                    raise Forbidden(f"{operation.name} is not for tenants, as it concerns all clients")
                response = await operation.handler(Request(scope, receive))
            except Exception as error:
                self._metrics.refuse(error)
                if not isinstance(error, (TvsnapError, OSError)):
                    logger.exception("%s failed", operation.name)
                response = error_response(error)
                if isinstance(error, TooLarge):
                    send = _Reading(receive, send)
            except asyncio.CancelledError:  # only a server that is stopped does that
                stopped = end_of_server(held="id" in scope["path_params"])
                self._metrics.refuse(stopped)
                response = error_response(stopped)
        with contextlib.suppress(asyncio.CancelledError):  # an answer that breaks off, as above
            await response(scope, receive, send)


class _Reading:
    """Sends an answer, and ends it only when what the client is still sending was read, for some time at most.

    A connection that is closed with something unread is reset, and the client may never see the answer.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send

    async def __call__(self, message: Message) -> None:
        """Sends one message."""
        ends = message["type"] == "http.response.body" and not message.get("more_body")
        if not ends:
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._read(), READ_ON)
        await self._send({"type": "http.response.body", "body": b""})

    async def _read(self) -> None:
        message = await self._receive()
        while message["type"] == "http.request" and message.get("more_body"):
            message = await self._receive()


class AtMost:
    """Refuses requests while there are too many connections, as what was not begun."""

    def __init__(self, app: ASGIApp, most: int, count: Callable[[], int]) -> None:
        """
        Args:
            app: what is behind it.
            most: how many connections there may be.
            count: returns how many there are.
        """
        self._app = app
        self._most = most
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] in REQUESTS and self._count() > self._most:
            busy = Busy(f"the server has more than {self._most} connections (--max-connections): close some")
            response = error_response(busy)
            response.headers["connection"] = "close"
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


class Refusals(Protocol):
    """What counts the requests that are refused."""

    def refuse(self, error: BaseException) -> None:
        """Counts a request that ended with an error."""
        ...


_SAME_SITE = (b"none", b"same-origin")
"""What a browser says of requests that no other page has made."""


class Guard:
    """Lets those in who may use the server: who has a token, or comes by the Unix socket."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Refusals, secret: str | None = None) -> None:
        """
        Args:
            app: what is behind it.
            settings: hold the tokens that are known, and whether certificates of clients are asked for.
            metrics: count the refusals.
            secret: what other processes of the server show; None where there are none.
        """
        self._app = app
        self._tokens = [(hashlib.sha256(token.encode()).digest(), tenant) for token, tenant in settings.tokens.items()]
        self._certificates = settings.tls_client_ca is not None
        self._metrics = metrics
        self._secret = None if secret is None else secret.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] == "websocket":
            send = _as_of_header(scope, send)
        if scope["type"] in REQUESTS:
            server = scope.get("server")
            by_socket = server is not None and server[1] is None
            headers = dict(scope["headers"])
            shown = headers.get(SECRET_HEADER)
            inside = shown is not None and self._secret is not None and hmac.compare_digest(shown, self._secret)
            is_open = scope["path"] in OPEN_PATHS or scope["path"].startswith(PAGE)
            needless = inside or (shown is None and (by_socket or is_open))
            try:
                # What another process of the server passes on has been checked, and is of the same tenant.
                if not needless or b"authorization" in headers:
                    certified = self._certificates and not by_socket
                    scope["tenant"] = self._check(headers, inside=inside, certified=certified)
            except TvsnapError as error:
                self._metrics.refuse(error)
                response = error_response(error)
                response.headers["www-authenticate"] = "Bearer"
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, headers: Mapping[bytes, bytes], *, inside: bool, certified: bool) -> Tenant | None:
        """Returns the tenant whose token a request shows; None for who may see all."""
        if SECRET_HEADER in headers and not inside:
            raise Unauthorized("a header of the request is one that only the server's own processes may send")
        if not self._tokens:
            # Without a token, a page in a browser of this machine must not be able to run commands.
            host = headers.get(b"host", b"").decode("latin-1").rpartition(":")[0] or headers.get(b"host", b"").decode()
            site = headers.get(b"sec-fetch-site", b"none")
            if b"origin" in headers or site not in _SAME_SITE or not (certified or is_loopback(host.strip("[]"))):
                raise Unauthorized("requests of web pages, or for another host than this machine, need a token")
            return None
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        shown = hashlib.sha256(token.strip()).digest()
        known = [(hmac.compare_digest(shown, one), tenant) for one, tenant in self._tokens]
        tenants = [tenant for fits, tenant in known if fits]
        if kind.lower() != b"bearer" or not tenants:
            raise Unauthorized("the request has no token, or one that the server does not know")
        return tenants[0]


def _as_of_header(scope: Scope, send: Send) -> Send:
    """Has the token of a WebSocket that a page opens in the header where others have it; returns what accepts it then.

    A page can set no header of a WebSocket, and addresses are written into logs: its token is a subprotocol's name.
    """
    offered = scope.get("subprotocols", [])
    if BROWSER_PROTOCOL not in offered:
        return send
    shown = next((name.removeprefix(BROWSER_TOKEN) for name in offered if name.startswith(BROWSER_TOKEN)), "")
    if shown and all(name != b"authorization" for name, _ in scope["headers"]):
        with contextlib.suppress(ValueError):
            token = base64.urlsafe_b64decode(shown + "=" * (-len(shown) % 4))
            scope["headers"] = [*scope["headers"], (b"authorization", b"Bearer " + token)]

    async def sending(message: Message) -> None:
        is_accepted = message["type"] == "websocket.accept"
        await send({**message, "subprotocol": BROWSER_PROTOCOL} if is_accepted else message)

    return sending


class _JSON(Response):
    """An answer of JSON, made in fewer steps than those of any type."""

    def __init__(self, body: bytes, status: int) -> None:
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]


def json_response(body: object, status: int = 200) -> Response:
    """Returns an answer of JSON.

    Args:
        body: what `encode` takes, or JSON as bytes.
        status: the status of HTTP.
    """
    return _JSON(body if isinstance(body, bytes) else encode(body), status)


def error_response(error: BaseException, status: int | None = None) -> Response:
    """Returns the answer that tells of an error.

    Args:
        error: the error.
        status: the status of HTTP; by default that of the error's class.
    """
    response = json_response({"error": error_data(error)}, meaning_of(error).status if status is None else status)
    if isinstance(error, (Busy, ServerStopped)):
        response.headers["retry-after"] = str(max(1, round(getattr(error, "retry_after", 1.0))))
    return response


def end_of_server(*, held: bool) -> InfrastructureError:
    """Returns the error with which a server that is being stopped answers what it does not do, or not to its end.

    Args:
        held: whether that is for something that a client holds, which ends with the server.
    """
    if held:
        return ServerStopped("the server is being stopped, and what clients have open ends; this was not finished")
    return Stopping("the server is being stopped; nothing remains of the request")


async def read_body(request: Request, limit: int) -> bytes:
    """Returns the body of a request.

    Args:
        request: the request.
        limit: bytes that it may have at most.

    Raises:
        TooLarge: it has more.
        UsageError: it did not come whole.
    """
    check_length(request, limit)
    body, more = await next_piece(request)
    if more:
        pieces, size = [body], len(body)
        while more and size <= limit:
            piece, more = await next_piece(request)
            pieces.append(piece)
            size += len(piece)
        body = b"".join(pieces)
    if len(body) > limit:
        raise _too_large(limit)
    return body


def check_length(request: Request, limit: int) -> None:
    """Raises TooLarge where a request says that its body has more bytes than are allowed."""
    length = header_of(request, "content-length")
    if length is not None and length.isdigit() and int(length) > limit:
        raise _too_large(limit)


async def next_piece(request: Request) -> tuple[bytes, bool]:
    """Returns the next piece of a body, and whether more is to come.

    Raises:
        UsageError: the connection was closed.
    """
    message = await request.receive()
    if message["type"] != "http.request":
        raise UsageError("the connection was closed before the request was there whole")
    return message.get("body", b""), bool(message.get("more_body"))


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the request's body has more than {limit} bytes (--max-body, --max-upload)")


def header_of(request: HTTPConnection, name: str) -> str | None:
    """Returns a header of a request; None if it is not there.

    Args:
        request: the request.
        name: of the header, in small letters.
    """
    wanted = name.encode()
    for header, value in request.scope["headers"]:
        if header == wanted:
            text: str = value.decode("latin-1")
            return text
    return None


def number_of(request: HTTPConnection, name: str) -> int | None:
    """Returns a parameter of the query that is a whole number of at least 0; None if it is not there.

    Raises:
        UsageError: it is none.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if not is_number(text):
        raise UsageError(f"the parameter {name} must be a whole number from 0 to {LARGEST}, not {text!r}")
    return int(text)


def is_number(text: str) -> bool:
    """Returns whether a text is a whole number from 0 to `LARGEST`."""
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LARGEST


def flag_of(request: Request, name: str) -> bool:
    """Returns a parameter of the query that is `true` or `false`; False if it is not there.

    Raises:
        UsageError: it is neither.
    """
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise UsageError(f"the parameter {name} must be true or false, not {text!r}")
    return text == "true"


def request_mark(request: Request, body: bytes) -> int:
    """Returns a hash by which a request that is sent again is told from another one with the same key."""
    return hash((request.scope["method"], request.scope["path"], body))
