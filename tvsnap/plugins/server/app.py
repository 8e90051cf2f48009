"""The server as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from tvsnap.model.errors import NotFound
from tvsnap.plugins.server.call_routes import CallRoutes
from tvsnap.plugins.server.content_routes import ContentRoutes
from tvsnap.plugins.server.health_routes import HealthRoutes
from tvsnap.plugins.server.http import REQUESTS, Endpoint, Guard, Operation, error_response, json_response
from tvsnap.plugins.server.image_routes import ImageRoutes
from tvsnap.plugins.server.logs import RequestLog
from tvsnap.plugins.server.openapi import document
from tvsnap.plugins.server.page_routes import page_routes
from tvsnap.plugins.server.passing import Passing
from tvsnap.plugins.server.report_routes import ReportRoutes
from tvsnap.plugins.server.rollout_routes import RolloutRoutes
from tvsnap.plugins.server.sandbox_routes import SandboxRoutes
from tvsnap.plugins.server.service import Service
from tvsnap.plugins.server.terminal_routes import TerminalRoutes
from tvsnap.plugins.server.tracing import traces
from tvsnap.plugins.server.tvcache.routes import BY_ALL, TVCacheRoutes
from tvsnap.plugins.server.upkeep_routes import UpkeepRoutes
from tvsnap.plugins.server.workers import Worker


def make_app(service: Service, worker: Worker | None = None) -> ASGIApp:
    """Returns the application; when it is shut down, it ends what clients hold, and closes the cache.

    Args:
        service: the service that it offers; its settings say whom it lets in.
        worker: which of several processes it is; None if there is one.
    """
    settings = service.settings
    terminals = TerminalRoutes(service)
    rooms = (
        *(RolloutRoutes(service), SandboxRoutes(service), ContentRoutes(service)),
        *(ReportRoutes(service), CallRoutes(service), ImageRoutes(service), HealthRoutes(service)),
        *(UpkeepRoutes(service), terminals),
    )
    operations = [operation for room in rooms for operation in room.operations]
    foreign = TVCacheRoutes(service, worker).operations if settings.tvcache else []
    operations += foreign
    described = document(operations)

    async def openapi(_: Request) -> Response:
        return json_response(described)

    operations.append(Operation("GET", "/v1/openapi.json", "openapi", "Describes all this.", openapi))
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    routes: list[BaseRoute] = [Route(path, Endpoint(here, service.metrics)) for path, here in by_path.items()]
    routes += [WebSocketRoute(path, socket) for path, socket in terminals.sockets.items()]
    routes += page_routes()

    @contextlib.asynccontextmanager
    async def lifespan(_: ASGIApp) -> AsyncIterator[None]:
        ending = asyncio.ensure_future(service.end_what_is_idle())
        try:
            yield
        finally:
            ending.cancel()
            await service.close()
            if service.stored is not None:
                await asyncio.to_thread(service.stored.close)
            await service.cache.close()
            if tracing is not None:
                await asyncio.to_thread(tracing.close)

    inner: ASGIApp = Routes(routes, default=_nothing_there, lifespan=lifespan)
    if worker is not None:
        inner = Passing(inner, worker, {operation.path for operation in foreign}, BY_ALL, lambda: service.stopping)
    guard = Guard(inner, settings, service.metrics, None if worker is None else worker.secret)
    outer: ASGIApp = RequestLog(guard) if settings.log_format == "json" else guard
    tracing = traces(outer)
    return outer if tracing is None else tracing


_PARAMETER, _HERE = object(), object()
_Words = dict[Any, Any]
"""By each word that a path may have next, what may follow; at the end of a path, its endpoint with its parameters."""


class Routes(Router):
    """Finds what is at a path: operations by the words of the path, any other as Starlette does."""

    def __init__(self, routes: Sequence[BaseRoute], default: ASGIApp, lifespan: Lifespan[Any]) -> None:
        """
        Args:
            routes: in the order in which they are looked at.
            default: answers if none of them fits.
            lifespan: runs at the beginning and at the end.
        """
        super().__init__(routes, default=default, lifespan=lifespan)
        self._words: _Words = {}
        for route in routes:
            if isinstance(route, Route) and isinstance(route.endpoint, Endpoint):
                place = self._words
                for word in route.path.split("/"):
                    place = place.setdefault(_PARAMETER if word.startswith("{") else word, {})
                place[_HERE] = (route.endpoint, tuple(route.param_convertors))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] == "http":
            place: Any = self._words
            values = []
            for word in scope["path"].split("/"):
                below = place.get(word)
                if below is None and word:
                    below = place.get(_PARAMETER)
                    values.append(word)
                if below is None:
                    break
                place = below
            else:
                if _HERE in place:
                    endpoint, names = place[_HERE]
                    scope["path_params"] = dict(zip(names, values, strict=True))
                    await endpoint(scope, receive, send)
                    return
        await super().__call__(scope, receive, send)


async def _nothing_there(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] in REQUESTS:
        error = NotFound(f"there is nothing at {scope['path']}; /v1/openapi.json tells what there is")
        await error_response(error)(scope, receive, send)
