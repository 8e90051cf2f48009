"""Logs as lines of JSON: one for each request, and one for each message of the server."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Awaitable
from datetime import datetime, timezone

from msgspec import Struct, json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tvsnap.plugins.server.http import REQUESTS

LONGEST_ID = 64
SWITCHED = 101  # the status of what has become a WebSocket
"""Characters of an id that a line has: whoever sends a request chooses it."""
_ENCODE = json.Encoder().encode


class Line(Struct, omit_defaults=True, kw_only=True):
    """One line of the log; members that are None are left out.

    Attributes:
        time: when the request was answered, or the message was given.
        level: the message's level; `info` for requests.
        logger: the name of the message's logger.
        message: its words; `request` for requests.
        exception: the error that the message tells of, with its traceback.
        method: the request's method.
        route: its path, with the names of parameters in braces; None if there is nothing at its path.
        status: the answer's status; None if none was begun.
        seconds: from the request's head to the end of the answer.
        tenant: the tenant that asks; None if it is no tenant.
        rollout: the id of the rollout that it concerns.
        sandbox: the id of the sandbox that it concerns.
        source: what answered the call: `hit`, `coalesced` or `executed`; None for other requests, and for a call that
            was sent again.
    """

    time: datetime
    level: str
    logger: str | None = None
    message: str
    exception: str | None = None
    method: str | None = None
    route: str | None = None
    status: int | None = None
    seconds: float | None = None
    tenant: str | None = None
    rollout: str | None = None
    sandbox: str | None = None
    source: str | None = None


class RequestLog:
    """Writes a line to standard error for each request."""

    def __init__(self, app: ASGIApp) -> None:
        """
        Args:
            app: the application behind it.
        """
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, and writes what it came to, unless another process of the server does."""
        if scope["type"] not in REQUESTS:
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), None

        def sending(message: Message) -> Awaitable[None]:
            nonlocal status
            if status is None:
                status = message.get("status", SWITCHED)
            return send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            if "unlogged" not in scope:
                _write(_line(scope, status, time.perf_counter() - began))


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        exception = None if record.exc_info is None else self.formatException(record.exc_info)
        message = record.getMessage().encode("utf-8", "backslashreplace").decode()
        now = datetime.fromtimestamp(record.created, timezone.utc)
        line = Line(time=now, level=record.levelname.lower(), logger=record.name, message=message, exception=exception)
        return _ENCODE(line).decode()


def log_as_json() -> None:
    """Has the messages of this process written to standard error as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter())
    logging.getLogger().addHandler(handler)
    logging.getLogger("tvsnap").setLevel(logging.INFO)


def _line(scope: Scope, status: int | None, seconds: float) -> Line:
    route: str | None = scope.get("route")
    tenant, rollout, sandbox = scope.get("tenant"), scope.get("rollout"), None
    if route is not None and (id := scope.get("path_params", {}).get("id")) is not None:
        if route.startswith("/v1/rollouts/"):
            rollout = id[:LONGEST_ID]
        else:
            sandbox = id[:LONGEST_ID]
    return Line(
        time=datetime.now(timezone.utc),
        level="info",
        message="request",
        method=scope.get("method", "GET"),
        route=route,
        status=status,
        seconds=round(seconds, 6),
        tenant=None if tenant is None else tenant.name,
        rollout=rollout,
        sandbox=sandbox,
        source=scope.get("source"),
    )


def _write(line: Line) -> None:
    """Writes a line at once and whole, as several processes write to the same file."""
    with contextlib.suppress(OSError):  # nobody reads it any more, and the server goes on
        os.write(2, _ENCODE(line) + b"\n")
