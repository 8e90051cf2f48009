"""Runs a server until it is told to stop: its signals, and its end."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Collection
from functools import partial
from types import FrameType
from typing import Any, cast

import uvicorn

from tvsnap.aio.cache import AsyncCache
from tvsnap.plugins.server.app import make_app
from tvsnap.plugins.server.http import AtMost
from tvsnap.plugins.server.patience import Patient, PatientSocket
from tvsnap.plugins.server.service import Service
from tvsnap.plugins.server.settings import ServerSettings
from tvsnap.plugins.server.signals import StoppedBySignals
from tvsnap.plugins.server.tls import HANDSHAKE_PATIENCE, server_context
from tvsnap.plugins.server.tvcache.targets import LongTargets
from tvsnap.plugins.server.workers import Worker

KEEP_ALIVE = 3600
"""Seconds that an idle connection is kept: a client's pool need not connect anew for each call."""
LONGEST_MESSAGE = 1 << 20
"""Bytes that a client may send in one message of a WebSocket."""
LAST_ANSWERS = 2
"""Seconds that clients have for taking the last answers of a server that stops."""
BETWEEN_LOOKS = 0.05
"""Seconds between looks whether the requests under way have ended."""


async def serve(
    cache: AsyncCache,
    settings: ServerSettings,
    sockets: list[socket.socket],
    worker: Worker | None = None,
    ready: Callable[[], None] | None = None,
) -> None:
    """Serves a cache until SIGTERM or SIGINT comes; then ends all rollouts and sandboxes, and closes the cache.

    Args:
        cache: the cache.
        settings: the server's settings.
        sockets: sockets at which it listens.
        worker: which of several processes it is; None if there is one.
        ready: is called once the cache can be used.
    """
    connections: Collection[object] = ()
    service = Service(cache, settings, *(() if worker is None else (worker.prefix, worker.server)))
    app = make_app(service, worker)
    config = uvicorn.Config(
        AtMost(app, settings.max_connections, lambda: len(connections)),
        http=cast("Any", partial(LongTargets if settings.tvcache else Patient, settings=settings)),
        ws=cast("Any", partial(PatientSocket, settings=settings)),
        ws_max_size=LONGEST_MESSAGE,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=LAST_ANSWERS,
    )
    if ready is not None:
        ready()
    server = _Server(config, service)
    connections = server.server_state.connections
    beating = None if worker is None else asyncio.ensure_future(worker.heartbeat.beat())
    try:
        await server.serve(sockets)
    finally:
        if beating is not None:
            beating.cancel()


class _Server(StoppedBySignals):
    """Has TLS at TCP ports alone, and ends what is under way in order."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._tls = server_context(service.settings)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen."""
        assert sockets is not None
        encrypted = [one for one in sockets if self._tls is not None and one.family != socket.AF_UNIX]
        await super().startup([one for one in sockets if one not in encrypted])
        for one in encrypted:
            listening = await asyncio.get_running_loop().create_server(
                self._protocol, sock=one, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_PATIENCE
            )
            self.servers.append(listening)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Has the server begin nothing any more, and stop."""
        self._service.stopping = True
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Waits for requests under way, for some time at most; those that are left are answered with an error.

        Until then it goes on to listen: who asks for something new is told that the server stops.
        """
        self._service.events.close()
        until = time.monotonic() + self._service.settings.grace
        while self.server_state.tasks and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(BETWEEN_LOOKS)
        for task in self.server_state.tasks:
            task.cancel()
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol
