"""Operations on the server itself: its figures, its health, and a stream of what happens."""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tvsnap.plugins.client.wire.values import to_data
from tvsnap.plugins.server import events, metrics
from tvsnap.plugins.server.bodies import encode
from tvsnap.plugins.server.http import Operation, json_response
from tvsnap.plugins.server.service import Service
from tvsnap.plugins.server.tenants import tenant_of
from tvsnap.upkeep.figures import figures

SAMPLES = 1000
"""Latencies of each kind in an answer: the latest ones."""


class HealthRoutes:
    """Operations on the server itself."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def operations(self) -> list[Operation]:
        """All of them."""
        return [
            Operation("GET", "/v1/stats", "stats", "Tells what was done and what is used.", self.stats, of_all=True),
            Operation("GET", "/v1/events", "events", "Tells what happens.", self.events, None, events.MEDIA_TYPE),
            Operation("GET", "/healthz", "health", "Tells that the server runs.", self.health),
            Operation("GET", "/readyz", "ready", "Tells whether the server takes requests.", self.ready),
            Operation(
                *("GET", "/metrics", "metrics", "Returns figures for Prometheus.", self.metrics, None, "text/plain"),
                of_all=True,
            ),
        ]

    async def stats(self, request: Request) -> Response:
        """Tells the figures of this server and of the data directory."""

        def read() -> bytes:
            stats = self._service.cache.stats()
            latest = {kind: samples[-SAMPLES:] for kind, samples in stats.latency_s.items()}
            figured = figures(self._service.cache.cache.home, self._service.cache.cache.graph)
            return encode({"stats": to_data(replace(stats, latency_s=latest)), "figures": to_data(figured)})

        return json_response(await self._service.in_thread(read))

    async def events(self, request: Request) -> Response:
        """Tells what happens from now on, as it happens, until the server is stopped."""
        self._service.check_going(held=False)
        listener = self._service.events.listen(tenant_of(request))
        return StreamingResponse(listener, media_type=events.MEDIA_TYPE, headers={"cache-control": "no-cache"})

    async def health(self, request: Request) -> Response:
        """Tells that the server runs, and its id, which is another one after each start."""
        return json_response({"status": "ok", "id": self._service.id})

    async def ready(self, request: Request) -> Response:
        """Tells whether the server takes requests."""
        if self._service.stopping:
            return json_response({"status": "stopping"}, 503)
        return json_response({"status": "ready", "trouble": self._service.cache.trouble})

    async def metrics(self, request: Request) -> Response:
        """Returns figures for Prometheus."""
        text = await self._service.in_thread(self._service.metrics.text)
        return Response(text, headers={"content-type": metrics.MEDIA_TYPE})
