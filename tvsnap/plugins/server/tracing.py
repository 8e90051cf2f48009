"""Traces by OpenTelemetry, where the environment asks for them: a span for each request."""

from __future__ import annotations

import logging
import os
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tvsnap.plugins.server.http import REQUESTS

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SERVER_FAILED = 500

logger = logging.getLogger("tvsnap.server")


def asked_for() -> bool:
    """Returns whether the standard variables of OpenTelemetry ask for traces."""
    exporters = os.environ.get("OTEL_TRACES_EXPORTER", "")
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporters not in ("", "otlp"):
        return False
    return exporters == "otlp" or any(os.environ.get(name) for name in ENDPOINTS)


def traces(app: ASGIApp) -> Traces | None:
    """Returns what traces the requests that an application is asked for; None where nothing asks for that.

    Args:
        app: the application.
    """
    if not asked_for():
        return None
    try:
        return Traces(app)
    except ModuleNotFoundError as error:
        logger.warning("no traces: the package %s is missing: pip install 'tvsnap[otel]'", error.name)
        return None


class Traces:
    """Makes a span of each request, below the one that its header traceparent names, and sends it by OTLP."""

    def __init__(self, app: ASGIApp) -> None:
        """
        Args:
            app: the application behind it.

        Raises:
            ModuleNotFoundError: a package of OpenTelemetry is missing.
        """
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        has_name = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        self._app = app
        self._provider = TracerProvider(resource=Resource.create({} if has_name else {"service.name": "tvsnap"}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("tvsnap")
        self._context = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER
        self._failed = Status(StatusCode.ERROR)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] not in REQUESTS:
            await self._app(scope, receive, send)
            return
        came = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method, status = scope.get("method", "GET"), 0

        async def sending(message: Message) -> None:
            nonlocal status
            status = status or message.get("status", 0)
            await send(message)

        parent = self._context.extract(came)
        with self._tracer.start_as_current_span(method, parent, self._kind) as span:
            own: dict[str, str] = {}
            self._context.inject(own)  # for another process of the server, to which it may be passed on
            headers = [(name, value) for name, value in scope["headers"] if name.decode("latin-1") not in own]
            headers += [(name.encode(), value.encode()) for name, value in own.items()]
            scope = {**scope, "headers": headers}
            try:
                await self._app(scope, receive, sending)
            finally:
                route = scope.get("route")
                if route is not None:
                    span.update_name(f"{method} {route}")
                span.set_attributes(_attributes(scope, method, status))
                if status >= _SERVER_FAILED:
                    span.set_status(self._failed)

    def close(self) -> None:
        """Sends what was not sent yet. It blocks for as long as the exporter's timeout allows."""
        self._provider.shutdown()


def _attributes(scope: Scope, method: str, status: int) -> dict[str, Any]:
    """Returns what a span tells of a request: HTTP's by the names of OpenTelemetry, and tvsnap's own."""
    route, tenant = scope.get("route"), scope.get("tenant")
    id = scope.get("path_params", {}).get("id")
    names_of_ids = {"/v1/rollouts/": "tvsnap.rollout", "/v1/sandboxes/": "tvsnap.sandbox"}
    facts = {
        "http.request.method": method,
        "http.route": route,
        "http.response.status_code": status or None,
        "tvsnap.tenant": None if tenant is None else tenant.name,
        "tvsnap.rollout": scope.get("rollout"),
        "tvsnap.source": scope.get("source"),
        "tvsnap.tool": scope.get("tool"),
        "tvsnap.state": scope.get("reached"),
    }
    facts |= {
        name: id for prefix, name in names_of_ids.items() if id is not None and route and route.startswith(prefix)
    }
    return {name: value for name, value in facts.items() if value is not None}
